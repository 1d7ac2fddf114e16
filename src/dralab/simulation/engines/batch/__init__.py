"""Rigid jobs on whole machines: the engine, the schedulers, and Batsim's files and messages."""
