"""Files that users write to describe runs: one table of fields per object reads and describes it.

`tables` has the words of such tables, `fields` the reader with the lines of a file, `code` loads
classes that a file names. What the fields mean is left to those that have the tables.
"""
