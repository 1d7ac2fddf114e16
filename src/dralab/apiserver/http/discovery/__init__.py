"""Discovery: groups, versions and kinds, in the old and the new form.

Source: k8s.io/apiserver `endpoints/discovery`; clients and what they read are in the guides.
"""
