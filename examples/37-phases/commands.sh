# k8s-cluster-simulator's configuration; pods say in phases what they use. Metrics, then a summary.
dralab simulate ticks config --pods pods.yaml -o table
