"""Devices for claims, as a function of a snapshot.

What others use:

    problem, v1          the problem as frozen values, and its reader and writer for v1 mappings
    allocator            allocate on one node, place on the best of several → outcome
    fleet                a fleet that is loaded once and changes claim by claim
    policy.policies      which of the possible allocations; Kubernetes' choice without one
    optimum              a whole batch at once, and a bound for every policy
    explanation, facts   why not, a minimal conflict, remedies
    check.enumeration    all allocations instead of the first
    check.verification   judges finished allocations, sharing nothing with the search

The folders, each above the next: `explanation` and `check`, `policy`, `inventory`, `search`.

How it works: docs/concepts/allocation.md. Reading objects from a server, writing results back and
waiting for anything is left to `scheduler` and `cli`; evaluating expressions, to `cel`.
"""
