"""The functions behind the names, one module per library; signatures beside them."""
