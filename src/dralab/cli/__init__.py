"""The command line: the path of a command is the path of its file.

Each module reads arguments, calls one function below and prints. Rules live in the floors below.
"""
