# Which pod gets which devices on which node? Files are enough: no cluster, no server.
dralab allocate -f cluster.yaml -f pods.yaml
