"""The options of the autoscaler of `dralab up`."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import click

from dralab.cli._options import EXISTING, opt
from dralab.cli.errors import refusing

AUTOSCALERS = ["karpenter", "cluster-autoscaler"]

if TYPE_CHECKING:
    from dralab.cluster import Component
    from dralab.components.nodes import NodeOptions, Nodes


@dataclass(frozen=True, kw_only=True)
class AutoscalerFlags:
    """Which autoscaler runs, and with which rules and pools."""

    autoscaler: str | None = opt(
        "Add nodes as karpenter or cluster-autoscaler.",
        AUTOSCALERS,
        metavar="NAME",
    )
    autoscaler_config: Path | None = opt(
        "Flags of the autoscaler, and pools: the fields `autoscaler` and `pools` of a scenario.",
        EXISTING,
    )

    def __bool__(self) -> bool:
        return self.autoscaler is not None

    def check(
        self, wanted: "NodeOptions", profiles: "Sequence[str]", left_out: "Sequence[str]"
    ) -> None:
        """Refuse what machines of pools cannot do. BadParameter, UsageError."""
        from dralab.components.nodes import SIMULATED

        problem = ""
        if self.autoscaler is None:
            if self.autoscaler_config is not None:
                raise click.UsageError("--autoscaler-config needs --autoscaler")
        elif wanted.runtime != SIMULATED or wanted.root is not None:
            problem = "adds simulated nodes: omit --runtime process and --root"
        elif "v1" not in profiles:
            problem = "needs v1 among those of --api"
        elif "nodes" in left_out:
            problem = "adds nodes, which --without leaves out"
        if problem:
            raise click.BadParameter(problem, param_hint="--autoscaler")

    def components(self, nodes: "Nodes") -> "list[Component]":
        """Return the autoscaler, if one runs; `nodes` run its machines. UnusableInput."""
        if self.autoscaler is None:
            return []
        from dralab.scenarios.errors import InputError
        from dralab.simulation.live.options import source_of
        from dralab.simulation.live.part import PoolAutoscaler

        with refusing(InputError):
            source = source_of(self.autoscaler, self.autoscaler_config)
        return [PoolAutoscaler(source, nodes)]
