"""What judges the search from outside: the verifier, all allocations, recorded cases.

`verification` shares no code with the search, so that a mistake is not made twice.
"""
