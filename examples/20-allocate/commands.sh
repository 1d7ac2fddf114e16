# Which pod gets which devices on which node? Works on files, without cluster or server.
dralab allocate -f cluster.yaml -f pods.yaml
