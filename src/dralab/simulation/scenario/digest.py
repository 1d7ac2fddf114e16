"""A digest of everything that a run depends on; identifies checkpoints and campaign runs."""

from dataclasses import replace

from dralab.scenarios import code
from dralab.simulation import checkpoints
from dralab.simulation.scenario.scenario import Scenario


def digest(scenario: Scenario) -> str:
    """Return what a run depends on, as a short text: the same text, the same result."""
    fleet = scenario.fleet
    # Labels are sets, and the text of a set has another order in another process.
    nodes = [(replace(node, labels=frozenset()), sorted(node.labels)) for node in fleet.nodes]
    named = {scenario.scheduler, *(name for node in fleet.nodes for name in node.drivers)}
    files = [
        scenario.file.parent / name.rpartition(":")[0]
        for name in sorted(named)
        if code.is_file(name)
    ]
    parts = (
        scenario.seed, scenario.scheduler, scenario.conditions, scenario.energy, nodes,
        fleet.platform, fleet.objects, fleet.running, scenario.work, scenario.tick,
    )  # fmt: skip
    return checkpoints.digest(parts, files)
