# k8s-cluster-simulator's configuration; pods have phases of use. Metrics, then a summary.
dralab simulate ticks config --pods pods.yaml -o table
