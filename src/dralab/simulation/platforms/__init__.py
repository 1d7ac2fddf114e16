"""Platforms: hosts with speed and power, and the links between them."""
