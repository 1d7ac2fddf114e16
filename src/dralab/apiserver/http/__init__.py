"""The API server's HTTP: routing and encoding as a pure function, and the transport around it."""
