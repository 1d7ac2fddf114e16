"""The autoscaler that a scenario names."""

from dralab.kernel.randomness import Randomness
from dralab.simulation.engines.autoscaling.cluster_autoscaler import ClusterAutoscaler
from dralab.simulation.engines.autoscaling.karpenter import Karpenter
from dralab.simulation.engines.autoscaling.loop import Autoscaler
from dralab.simulation.engines.autoscaling.machines import Machines
from dralab.simulation.scenario.pools import KarpenterRules, Rules


def autoscaler_of(machines: Machines, rules: Rules, chance: Randomness, begin: int) -> Autoscaler:
    """Return the autoscaler with these rules, which looks from `begin` on."""
    if isinstance(rules, KarpenterRules):
        return Karpenter(machines, rules, begin)
    return ClusterAutoscaler(machines, rules, chance.stream, begin)
