# Demo 7: the scheduler itself chooses the devices. To use a live cluster instead:
#   dralab up --empty --data :memory: --api v1,classic --driver fake --kubeconfig lab.kubeconfig
#   kubectl --kubeconfig lab.kubeconfig apply -f fake-test7.yaml
#   kubectl --kubeconfig lab.kubeconfig get resourceclaimparameters -n test7 -o yaml
python example.py
