#!/usr/bin/env bash
# A scheduler with kubectl and curl: it lists, picks a random node, binds, and sleeps. These are
# the calls of bashScheduler, both with SERVER and with the kubeconfig.
SERVER=${SERVER:-localhost:8001}
SCHEDULER=${SCHEDULER:-bashScheduler}
PERIOD=${PERIOD:-6}

while true; do
  for pod in $(kubectl --server "http://$SERVER" get pods --all-namespaces \
    --field-selector=status.phase==Pending -o 'jsonpath={.items[*].metadata.name}'); do
    wanted=$(kubectl get pod "$pod" -o 'jsonpath={.spec.schedulerName}')
    [ "$wanted" = "$SCHEDULER" ] || continue
    namespace=$(kubectl get pod "$pod" -o 'jsonpath={.metadata.namespace}')
    read -r -a nodes <<<"$(kubectl --server "http://$SERVER" get nodes -o 'jsonpath={.items[*].metadata.name}')"
    node=${nodes[RANDOM % ${#nodes[@]}]}
    curl --silent --header 'Content-Type: application/json' --request POST --data \
      "{\"apiVersion\": \"v1\", \"kind\": \"Binding\", \"metadata\": {\"name\": \"$pod\"},
        \"target\": {\"apiVersion\": \"v1\", \"kind\": \"Node\", \"name\": \"$node\"}}" \
      "http://$SERVER/api/v1/namespaces/$namespace/pods/$pod/binding/" | grep '"code": 201' || exit 1
    echo "$namespace/$pod to $node"
  done
  sleep "$PERIOD"
done
