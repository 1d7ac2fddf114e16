"""Grids of runs: scenarios, schedulers and seeds, on many processes, restartable, compared."""
