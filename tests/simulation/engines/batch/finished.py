"""Runs of Batsim's workloads that are over."""

from dralab.simulation.engines.batch import run as runs


def run_batsim(workloads, **options):
    simulation = runs.of_batsim(workloads, **options)
    simulation.run()
    return simulation
