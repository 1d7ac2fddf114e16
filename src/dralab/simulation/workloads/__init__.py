"""What is to be run: readers of each format into the jobs and pods that the engines know."""
