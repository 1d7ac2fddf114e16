"""Any scheduler, untouched, in simulated time: the API server owns the clock.

What happens at an instant is delivered; when the scheduler has answered and gone silent, the clock
jumps to the next event. The scheduler needs nothing but a kubeconfig.
"""
