# Five pods of the k8srm prototype, scheduled and explained; the last one does not fit.
dralab schedule -f fleet.yaml -f pods.yaml
