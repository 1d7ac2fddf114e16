"""What is asked about every write before it is stored, in order; later parts add their own.

What objects of a kind must look like in themselves is left to `api` and the rules of the verbs.
"""
