"""What is kept between searches: pools and their states, plans, feasible nodes, placements.

It makes the answer to the next claim cheap and never changes it. The way in is `fleet`.
"""
