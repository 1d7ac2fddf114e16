# What the fake driver gives to each container. With a cluster to look at instead:
#   dralab up --empty --data :memory: --profile v1,classic --driver fake --kubeconfig lab.kubeconfig
#   kubectl --kubeconfig lab.kubeconfig apply -f fake-test1.yaml
#   kubectl --kubeconfig lab.kubeconfig logs -n test1 pod0 | grep FAKE_DEVICE
# The seventh, whose devices the scheduler chooses, is in ../53-fake-driver-structured.
python example.py
