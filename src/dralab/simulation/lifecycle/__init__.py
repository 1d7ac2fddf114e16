"""The life cycle of pods and nodes in a simulation, shared by the engines."""
