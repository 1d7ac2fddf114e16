"""Drivers that break one rule each, by the id of the check that must catch them."""

from mutants import crash, faults, health, load, prepare, registration, slices, unprepare

MODULES = (registration, slices, prepare, unprepare, crash, health, faults, load)
MUTANTS = {id_: make for module in MODULES for id_, make in module.MUTANTS.items()}
