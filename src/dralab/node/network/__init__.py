"""Networks of pods under the process runtime: a namespace for each node, and one for each pod.

`addresses` divides the cluster's range, `namespaces` makes and enters namespaces, `topology` says
which interfaces and routes there are, `cluster_network` sets them up. Services are left to
kube-proxy, names to a DNS server in the cluster.
"""
