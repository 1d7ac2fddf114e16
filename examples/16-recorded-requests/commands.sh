# Record requests with their expected responses, and replay them against a new server.
# The last expectation is wrong on purpose, so the command exits with code 1.
dralab conformance apiserver --verbose cases.json || true
