"""Pods on nodes with devices, in simulated time: arrivals, decisions, life cycles, faults."""
