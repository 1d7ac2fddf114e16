# Five pods of the k8srm prototype, scheduled and explained; the last one does not fit.
dralab allocate -f fleet.yaml -f pods.yaml
