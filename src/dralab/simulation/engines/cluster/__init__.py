"""dralab's own scheduler and controllers in simulated time, with real objects and claims."""
