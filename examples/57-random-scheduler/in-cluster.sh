#!/usr/bin/env bash
# Run a program that reads its token only from a pod's path: in-cluster.sh FOLDER PROGRAM...
# It gets a private /run (Linux, user namespaces); /var/run points there.
folder=$(realpath "$1")
shift
exec unshare --map-root-user --mount bash -c '
  kept=$(mktemp -d) && cp "$0"/* "$kept" && mount -t tmpfs none /run &&
    mkdir -p /run/secrets/kubernetes.io/serviceaccount &&
    cp "$kept"/* /run/secrets/kubernetes.io/serviceaccount && rm -r "$kept" && exec "$@"
' "$folder" "$@"
