# The devices of each container with the fake driver. To use a live cluster instead:
#   dralab up --empty --data :memory: --api v1,classic --driver fake --kubeconfig lab.kubeconfig
#   kubectl --kubeconfig lab.kubeconfig apply -f fake-test1.yaml
#   kubectl --kubeconfig lab.kubeconfig logs -n test1 pod0 | grep FAKE_DEVICE
# Demo 7, in which the scheduler chooses the devices, is in ../53-fake-driver-structured.
python example.py
