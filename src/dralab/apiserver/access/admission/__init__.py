"""Admission: plugins that check or change every write before it is stored, in order.

Validation of single objects is in `api` and the rules of the verbs.
"""
