"""The one safe reader: files, directories and archives that somebody else may have prepared.

`reading` opens single files, `sources` whatever a command is given with `-f`. Only regular files
are opened, a directory's links must stay inside it, and sizes, counts and depths are bounded. What
the bytes mean is left to the floors above.
"""
