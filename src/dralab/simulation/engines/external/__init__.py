"""Any unmodified scheduler in simulated time: the API server owns the clock.

The events of an instant are delivered; when the scheduler has answered and is silent, the clock
jumps to the next event. The scheduler needs only a kubeconfig.
"""
