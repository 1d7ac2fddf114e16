"""Admission policies: expressions that look at writes, or change them.

`definitions` compiles policies and bindings when they are stored, `parameters` finds the objects
that bindings refer to, `variables` is what expressions see. `validating` and `mutating` are the
plugins, `patches` makes changes from what expressions return, `checks` finds what is wrong with a
policy before it is stored.
"""
