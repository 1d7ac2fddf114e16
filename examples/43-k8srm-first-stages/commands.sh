dralab allocate -f nodes.yaml -f pod.yaml -v
