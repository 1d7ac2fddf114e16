"""Which node a pod gets and which devices, or why none: one model for everything that asks.

Readers fill it (objects of files, a live cache, a snapshot, the tables of a simulation); commands,
pages, simulations and the live scheduler ask it. It writes nothing and knows no clock, no chance
and no network. Queues, retries and binding are left to `scheduler`, words and remedies to
`explanation`, changes one may suppose to `capacity`.
"""
