"""The stored objects as all verbs see them: types, owners, indexes, selections, options.

It changes nothing: that is for the verbs beside it.
"""
