"""Policies of one's own: what one may decide, what it sees, and what is wrong with one.

Which engine asks for what is in `user_policy`; how it is asked is the engines' affair.
"""
