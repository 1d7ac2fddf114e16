"""Reports: one self-contained HTML file, and pictures."""
