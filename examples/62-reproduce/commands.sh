# Another simulator's own numbers beside ours, and the verdict. No files are needed for this one.
dralab reproduce k8s-cluster-simulator

# Each of the others says which files it needs, and where they are.
dralab reproduce backfilling 2>&1 | tail -3
