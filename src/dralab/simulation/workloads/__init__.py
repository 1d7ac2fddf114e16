"""Workloads: readers that turn each format into the jobs and pods of the engines."""
