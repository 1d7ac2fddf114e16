"""The Node Resource Interface: drivers that are asked about each container before it starts.

A plugin connects to the node's `nri.sock` and hooks into the life of pods and containers
(`plugins`). Calls go both ways over one socket (`trunk`). What a plugin wants of a container is
applied as far as the runtime can, and told in an event (`adjustments`). Drivers' gRPC sockets are
left to `dralab.node.sockets`.
"""
