"""Access control: authentication, authorization, admission, audit and fairness.

What the request does is for `verbs`, and how it arrives for `http`.
"""
