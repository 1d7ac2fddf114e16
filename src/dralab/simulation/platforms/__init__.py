"""Platforms: hosts, their speed and power, and the links between them."""
