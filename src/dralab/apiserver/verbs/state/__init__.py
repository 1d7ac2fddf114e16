"""The objects as all verbs see them: their types, owners, indexes and selections."""
