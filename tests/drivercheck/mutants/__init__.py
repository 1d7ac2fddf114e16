"""Drivers that break one rule each, by the id of the check that must catch them."""

from mutants import registration, slices

MUTANTS = {**registration.MUTANTS, **slices.MUTANTS}
