"""The clock, the order of events, randomness, and the one HTTP client.

The only place that reads the machine's time. Everything else takes a `Clock` and a named
random stream as arguments. The caller that schedules an event decides what happens at it.
"""
