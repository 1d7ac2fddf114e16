"""Bodies of requests and answers: JSON, YAML, protobuf, CBOR, tables."""
