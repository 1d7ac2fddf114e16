"""Admission webhooks: other programs that review writes.

`configurations` reads who is asked about what, `reviews` makes the question and reads the answer,
`plugins` asks, mutating ones one after the other, validating ones at the same time. Connections are
left to `outgoing`.
"""
