"""Documents about the server: discovery, OpenAPI, health, pages of components."""
