"""The contract between nodes and drivers: the DRA plugin services and CDI files.

`node` and `drivers` implement the two sides; both use only this package. gRPC needs the extra
`[grpc]` and is imported only by `wire`.
"""
