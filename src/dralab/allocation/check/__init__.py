"""Independent checks of the search: the verifier, exhaustive enumeration, recorded cases.

`verification` shares no code with the search, so that they do not share bugs.
"""
