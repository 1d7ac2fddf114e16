"""Objects that the server itself writes and deletes."""
