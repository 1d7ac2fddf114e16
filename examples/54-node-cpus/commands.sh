# CPUs that are given out as devices are CPUs of the node. With a cluster to look at instead:
#   dralab up --empty --data :memory: --nodes 1 --driver cpu --feature-gates DRANodeAllocatableResources=true
#   kubectl apply -f cpus.yaml, and kubectl get pod -o yaml
python example.py
