"""Batsim 5's protocol (batprotocol): messages as flatbuffers or JSON, over ZeroMQ, both ends.

`schema` has the types as data, `flatbuffers` their binary form, `spelling` both forms of a message.
The rest of the engine speaks protocol 4 (`protocol`): `events` translates what Batsim says,
`decisions` what is answered, each both ways. `ends` are the two ends of the socket.
"""
