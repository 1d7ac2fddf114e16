"""What stands between a node and a driver: the DRA plugin services and CDI files.

The sides themselves are left to `node` and `drivers`; both see only what is here. gRPC needs the
extra `[grpc]` and is imported by `wire` alone.
"""
