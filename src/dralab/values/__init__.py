"""Plain values of the Kubernetes API: quantities, versions, names, labels, patches.

Everything here is a pure function or a frozen value. What a value means in an object is
left to `api`. There is no clock, randomness or network here.
"""
