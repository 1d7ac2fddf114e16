"""Request bodies in protobuf, as Go clients send them, to plain JSON mappings.

Driven by the table in `api.messages`; nothing is generated per kind, and no protobuf library is
needed. Responses are JSON, which all clients that send protobuf accept.
"""

from dralab.apiserver.protobuf.decoding import MAGIC, ProtobufError, decode

__all__ = ["MAGIC", "ProtobufError", "decode"]
