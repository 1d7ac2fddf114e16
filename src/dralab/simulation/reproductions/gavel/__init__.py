"""Gavel's experiments: training jobs on GPUs of three types, in rounds of time slices.

Source of the rules: Narayanan et al., OSDI 2020, and the simulator published with it.
"""
