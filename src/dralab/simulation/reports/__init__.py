"""Results to look at: one HTML file without network, and pictures."""
