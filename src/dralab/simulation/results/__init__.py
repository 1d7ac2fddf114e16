"""The results of a run: tasks and samples, their metrics, and output files."""
