# Nodes come and go with pods. In another terminal:
#   dralab up --empty --data :memory: --autoscaler cluster-autoscaler --autoscaler-config quick.yaml --kubeconfig lab.kubeconfig
# and with Karpenter (then apply nodepool.yaml and pods.yaml, and watch nodepools, nodeclaims and nodes):
#   dralab up --empty --data :memory: --autoscaler karpenter --kubeconfig lab.kubeconfig
export KUBECONFIG=lab.kubeconfig
kubectl apply -f groups.yaml -f train.yaml
kubectl get nodes --watch
