from dralab.cluster import Cluster as Cluster
from dralab.cluster import Options as Options
from dralab.lab.answers import AllocationAnswer as AllocationAnswer
from dralab.lab.answers import ColumnTable as ColumnTable
from dralab.lab.answers import ExplanationAnswer as ExplanationAnswer
from dralab.lab.answers import HelpAnswer as HelpAnswer
from dralab.lab.answers import MovesAnswer as MovesAnswer
from dralab.lab.answers import PlanAnswer as PlanAnswer
from dralab.lab.answers import WhatIfAnswer as WhatIfAnswer
from dralab.lab.campaigns import Grid as Grid
from dralab.lab.campaigns import campaign as campaign
from dralab.lab.lab_cluster import LabCluster as SimulatedCluster
from dralab.lab.runs import Run as Run
from dralab.lab.runs import simulate as simulate
from dralab.lab.view import BadInput as BadInput
from dralab.lab.view import Lab as Lab
from dralab.lab.view import UnknownObject as UnknownObject
from dralab.lab.view import open as open  # noqa: A004
from dralab.scenarios.errors import InputError as InputError
from dralab.simulation.policies.protocol import OwnPolicy as Policy
from dralab.simulation.policies.protocol import PolicyNode as PolicyNode
from dralab.simulation.policies.protocol import PolicyState as PolicyState
from dralab.simulation.policies.protocol import PolicyTask as PolicyTask
from dralab.testing.decorator import simulation_test as simulation_test

__version__: str
__all__ = [
    "AllocationAnswer",
    "BadInput",
    "Cluster",
    "ColumnTable",
    "ExplanationAnswer",
    "Grid",
    "HelpAnswer",
    "InputError",
    "Lab",
    "MovesAnswer",
    "Options",
    "PlanAnswer",
    "Policy",
    "PolicyNode",
    "PolicyState",
    "PolicyTask",
    "Run",
    "SimulatedCluster",
    "UnknownObject",
    "WhatIfAnswer",
    "campaign",
    "open",
    "simulate",
    "simulation_test",
]
