# CPUs allocated as devices count as CPUs of the node. To use a live cluster instead:
#   dralab up --empty --data :memory: --nodes 1 --driver cpu --feature-gates DRANodeAllocatableResources=true
#   kubectl apply -f cpus.yaml, and kubectl get pod -o yaml
python example.py
