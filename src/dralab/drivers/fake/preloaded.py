"""What the fake drivers compute once: import this in a process that drivers are forked from.

The table of Go's random generator takes 0.1 s, and a check of a driver starts it ninety times.
"""

from dralab.drivers.go_random import table

table()
