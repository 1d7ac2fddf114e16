"""A run as one YAML file: fleet, workload, scheduler, life cycle, faults, seed, stop, outputs."""
