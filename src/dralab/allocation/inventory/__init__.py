"""State kept between searches: pools and their states, plans, feasible nodes, placements.

It makes the next answer cheaper but never changes it. `fleet` is the entry point.
"""
