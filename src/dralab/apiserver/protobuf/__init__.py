"""Kubernetes' protobuf: request bodies to plain JSON mappings, and mappings to answers.

Driven by the table in `api.messages`; nothing is generated per kind, and no protobuf library is
needed. `encoding` is imported by those who answer in protobuf.
"""

from dralab.apiserver.protobuf.decoding import MAGIC, ProtobufError, decode

__all__ = ["MAGIC", "ProtobufError", "decode"]
