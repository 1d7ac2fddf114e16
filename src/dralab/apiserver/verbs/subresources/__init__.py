"""The subresources of objects, and the reviews that clients ask for."""
