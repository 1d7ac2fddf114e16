"""The laboratory in Python: `import dralab` and what its names do (docs/reference/python.md)."""
