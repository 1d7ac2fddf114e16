# Five pods of the dra-evolution prototype, scheduled and explained; the last one cannot be.
dralab schedule -f fleet.yaml -f pods.yaml
