#!/bin/sh
set -eu
umask 077
closed=""

cordon() {
  kubectl cordon "$1"
  closed="$closed $1"
}

uncordon() {
  kubectl uncordon "$1"
  closed=$(for node in $closed; do [ "$node" = "$1" ] || printf ' %s' "$node"; done)
}

trap 'for node in $closed; do kubectl uncordon "$node"; done' EXIT
trap 'exit 130' INT TERM

stop() {
  echo "stopped: $1" >&2
  exit 1
}

# on NAMESPACE POD NODE: stop unless the pod still runs there.
on() {
  there=$(kubectl -n "$1" get pod "$2" -o jsonpath='{.spec.nodeName}')
  [ "$there" = "$3" ] || stop "pod $1/$2 is on node '$there' now, not on $3"
}

# evict NAMESPACE POD: a disruption budget may refuse it; wait until the pod is gone.
evict() {
  echo "{\"apiVersion\":\"policy/v1\",\"kind\":\"Eviction\",\"metadata\":{\"name\":\"$2\",\"namespace\":\"$1\"}}" |
    kubectl create --raw "/api/v1/namespaces/$1/pods/$2/eviction" -f - > /dev/null ||
    stop "pod $1/$2 was not evicted"
  kubectl -n "$1" wait --for=delete "pod/$2" --timeout=10m
}

# pods_of NAMESPACE KIND/NAME: the pods of a controller, one a line: KIND/NAME|name|uid|node|ready.
pods_of() {
  kubectl -n "$1" get pods -o jsonpath='{range .items[*]}{.metadata.ownerReferences[?(@.controller==true)].kind}{"/"}{.metadata.ownerReferences[?(@.controller==true)].name}{"|"}{.metadata.name}{"|"}{.metadata.uid}{"|"}{.spec.nodeName}{"|"}{.status.conditions[?(@.type=="Ready")].status}{"\n"}{end}' |
    awk -F '|' -v owner="$2" '$1 == owner'
}

# move NAMESPACE POD FROM TO KIND/NAME: evict a pod, and wait for the one that its controller makes.
move() {
  on "$1" "$2" "$3"
  before=$(pods_of "$1" "$5" | cut -d '|' -f 3)
  evict "$1" "$2"
  tries=0
  until [ "$tries" -ge 300 ]; do
    new=$(pods_of "$1" "$5" | grep -vF "$before" || true)
    elsewhere=$(echo "$new" | awk -F '|' -v node="$4" '$4 != "" && $4 != node { print $2 " on " $4 }')
    [ -z "$elsewhere" ] || stop "the pod that replaces $1/$2 should run on $4, it is $elsewhere"
    ready=$(echo "$new" | awk -F '|' '$5 == "True" { print $2 }')
    if [ -n "$ready" ]; then
      echo "pod/$ready is ready on $4"
      return
    fi
    tries=$((tries + 1))
    sleep 2
  done
  stop "no pod that replaces $1/$2 was ready on $4 within 10 minutes"
}

# again NAMESPACE POD FROM TO: evict a pod without a controller, and create it from its own spec.
again() {
  on "$1" "$2" "$3"
  file="$1-$2.json"
  kubectl -n "$1" get pod "$2" -o json > "$file.now"
  kubectl patch --local -f "$file.now" --type=merge -o json -p \
    '{"metadata":{"uid":null,"resourceVersion":null,"creationTimestamp":null},"spec":{"nodeName":null},"status":null}' > "$file"
  rm "$file.now"
  evict "$1" "$2"
  kubectl create -f "$file" || stop "pod $1/$2 is gone; kubectl create -f $file makes it again"
  kubectl -n "$1" wait --for=condition=Ready "pod/$2" --timeout=10m
  on "$1" "$2" "$4"
  rm "$file"
}

# starts NAMESPACE POD NODE: wait until the scheduler has put a pod there.
starts() {
  kubectl -n "$1" wait --for=condition=PodScheduled "pod/$2" --timeout=10m
  on "$1" "$2" "$3"
}
