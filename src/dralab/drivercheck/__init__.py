"""Conformance checks of DRA drivers, over their sockets, without a cluster or hardware.

`catalog` has the vocabulary of a check, `groups` the checks themselves, `bench` the kubelet and
the API server that a driver under test meets, `targets` how the driver is run, `runner` the order
and `reports` the result. What a real node does with a driver is in `node`; the rules of the API
are the server's.
"""
