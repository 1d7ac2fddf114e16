"""Policies of users: what one decides, what it sees, and its mistakes.

Which engine asks for what is in `user_policy`; how it is asked is the engines' affair.
"""
