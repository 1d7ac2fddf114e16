# The five scenarios in k8srm's and dra-evolution's APIs: do they get the same devices?
dralab compare ../40-k8srm/fleet.yaml ../40-k8srm/pods.yaml ../41-dra-evolution/fleet.yaml ../41-dra-evolution/pods.yaml
# And translated into today's API.
dralab compare -f ../40-k8srm/fleet.yaml -f ../40-k8srm/pods.yaml --to v1
