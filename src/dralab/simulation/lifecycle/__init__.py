"""What happens to pods and nodes in a simulation, whichever engine runs it."""
