"""What a run gave: tasks and samples, the numbers made of them, the files they go to."""
