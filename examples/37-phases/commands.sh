# k8s-cluster-simulator's configuration; pods have phases of use. Metrics, then a summary.
dralab simulate run config pods.yaml -o table
