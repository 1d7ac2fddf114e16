"""Bodies of requests and answers: JSON, YAML, protobuf, CBOR and tables.

Which of them a client accepts is decided by `http.negotiation`.
"""
