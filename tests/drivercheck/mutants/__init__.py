"""Drivers that break one rule each, by the id of the check that must catch them."""

from mutants import prepare, registration, slices, unprepare

MUTANTS = {**registration.MUTANTS, **slices.MUTANTS, **prepare.MUTANTS, **unprepare.MUTANTS}
