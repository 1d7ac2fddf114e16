"""The JSON schema of scenario files: what `scenario.scenario.load` reads."""

from dataclasses import fields as fields_of
from typing import Any, Final

from dralab.controllers import registry
from dralab.drivers.catalog import DRIVERS
from dralab.fleet import shapes
from dralab.simulation.engines.external.conductor import ConductorOptions
from dralab.simulation.engines.external.options import REAL, RENAMED, STOCK, VIRTUAL
from dralab.simulation.engines.external.pacing import PacingOptions
from dralab.simulation.scenario.fleet import EFFECTS
from dralab.simulation.scenario.generated import MOST_MACHINES, MOST_TASKS, SIZES
from dralab.simulation.scenario.scenario import PICTURES
from dralab.simulation.scenario.schedulers import BUILT_IN, EXTERNAL
from dralab.simulation.scenario.workload import MOST_INFLATED
from dralab.simulation.schemas.field_words import DURATION, LABEL, LABELS, QUANTITY
from dralab.simulation.workloads.generate import PROCESSES
from dralab.simulation.workloads.openb import WHOLE_GPU
from dralab.values.json_schema import (
    FILE,
    FLAG,
    PYTHON,
    TEXT,
    JsonSchema,
    about,
    any_of,
    choice,
    document,
    listing,
    mapping,
    number,
    one_of_fields,
    whole,
)

SCHEDULER: Final = any_of(choice([*BUILT_IN, EXTERNAL]), PYTHON)
EFFECT: Final = choice(EFFECTS)
_HOW_LONG: Final = {"$ref": "#/$defs/duration"}
_AMOUNT: Final = {"$ref": "#/$defs/quantity"}
_COUNT: Final = about("So many, numbered from 0; default: 1, without a number.", whole(1))


def schema() -> JsonSchema:
    """Return the schema of scenario files."""
    properties = {
        "apiVersion": {},
        "kind": {},
        "name": about("Of the run; default: the name of the file.", LABEL),
        "seed": about("The same scenario and seed give the same bytes.", whole()),
        "fleet": _fleet(),
        "workload": _workload(),
        "scheduler": about(
            "Who places pods or jobs; default: `default`.",
            any_of(SCHEDULER, mapping({"name": SCHEDULER, "strict_order": FLAG})),
        ),
        "policy": about("The same as scheduler.", SCHEDULER),
        "tick": about("Of `ticks`: whole seconds, at least 1.", _HOW_LONG),
        "queues": about(
            "The most that all pods of a queue use together, by the queue's name.",
            {
                "type": "object",
                "additionalProperties": mapping({"cpu": _AMOUNT, "gpus": _AMOUNT, "pods": whole()}),
            },
        ),
        "lifecycle": _lifecycle(),
        "faults": _faults(),
        "stop": about(
            "When the run ends before all is done.",
            mapping({"at": _HOW_LONG, "ended": whole(1)}),
        ),
        "measure": about(
            "The interval that counts, without warm-up and drain.",
            mapping({"from": _HOW_LONG, "to": _HOW_LONG}, ["to"]),
        ),
        "outputs": mapping(
            {
                "report": about("A directory in the folder of this file.", LABEL),
                "parquet": FLAG,
                "picture": choice(PICTURES),
            }
        ),
        "energy": about("Compute the energy that a platform's machines use.", FLAG),
        "external": _external(),
    }
    body = mapping(
        properties, ["fleet", "workload"], **{"not": {"required": ["scheduler", "policy"]}}
    )
    return document(
        "Scenario of dralab simulate",
        "Fleet, workload, scheduler, faults and outputs of one run: `dralab simulate run FILE`.",
        body,
        duration=about("Seconds, or 90s, 1h30m, 7d.", DURATION),
        quantity=about("A Kubernetes quantity: 4, 500m, 16Gi.", QUANTITY),
    )


def _fleet() -> JsonSchema:
    node = mapping(
        {
            "name": LABEL,
            "count": _COUNT,
            "cpu": _AMOUNT,
            "memory": about("Default: 64Gi.", _AMOUNT),
            "gpus": whole(),
            "model": about("Of its GPUs.", LABEL),
            "pods": about("The most pods on it; default: 110.", whole(1)),
            "labels": LABELS,
            "taints": listing(
                {"type": "string", "pattern": f"^[^=:][^=]*(=.*)?:({'|'.join(EFFECTS)})$"}
            ),
            "drivers": listing(any_of(choice(DRIVERS), PYTHON)),
        },
        ["cpu"],
    )
    shape = mapping(
        {"name": choice(shapes.names()), "nodes": whole(1), "seed": whole(), "gpus": whole(1)},
        ["name"],
    )
    forms = {
        "nodes": listing(node, 1),
        "hosts": about("So many machines for rigid jobs.", whole(1)),
        "openb": about("The nodes of an openb trace: CSV.", FILE),
        "platform": about("A SimGrid platform: XML.", FILE),
        "manifests": about("Nodes, ResourceSlices, DeviceClasses: YAML.", FILE),
        "shape": about("A sample, as of `dralab generate`.", shape),
        "snapshot": about("A file of `dralab snapshot`.", FILE),
        "simulator": about("A configuration of k8s-cluster-simulator.", FILE),
    }
    master = {"master": about("The host of the platform that runs no jobs.", LABEL)}
    return mapping(
        forms | master, oneOf=one_of_fields(*forms), dependentRequired={"master": ["platform"]}
    )


def _workload() -> JsonSchema:
    pod = mapping(
        _ASKED
        | {
            "name": LABEL,
            "count": _COUNT,
            "every": about("Between two arrivals.", _HOW_LONG),
            "at": about("When the first arrives.", _HOW_LONG),
            "duration": about("How long it runs; default: for ever.", _HOW_LONG),
        },
        ["name"],
        dependentRequired=_OF_GPUS,
    )
    job = mapping(
        {
            "name": LABEL,
            "count": _COUNT,
            "every": _HOW_LONG,
            "at": _HOW_LONG,
            "duration": _HOW_LONG,
            "machines": whole(1),
            "walltime": about("It is killed after so long.", _HOW_LONG),
            "user": LABEL,
        },
        ["name", "duration"],
    )
    forms = {
        "pods": listing(pod),
        "jobs": about("Rigid jobs: so many machines for so long.", listing(job)),
        "generate": _generate(),
        "batsim": about("Batsim's jobs and profiles: JSON.", FILE),
        "swf": about("A log in the Standard Workload Format.", FILE),
        "openb": about("The pods of an openb trace: CSV.", FILE),
        "manifests": about("Pods, Jobs and what they need: YAML.", FILE),
    }
    more = {
        "walltime_factor": number(),
        "requested_only": FLAG,
        "grain": whole(),
        "inflate": {"type": "number", "exclusiveMinimum": 0, "maximum": MOST_INFLATED},
    }
    needs = {"walltime_factor": ["swf"], "requested_only": ["swf"], "grain": ["swf"]}
    return mapping(
        forms | more,
        oneOf=one_of_fields(*forms),
        dependentRequired=needs | {"inflate": ["openb"]},
    )


_ASKED: Final[dict[str, JsonSchema]] = {
    "cpu": _AMOUNT,
    "memory": _AMOUNT,
    "gpus": whole(),
    "gpu_milli": about("Of each GPU, in thousandths.", whole(1, WHOLE_GPU)),
    "models": about("Names of GPU models, joined by |.", LABEL),
    "node_labels": LABELS,
    "priority": whole(-(2**31)),
    "queue": LABEL,
    "user": LABEL,
    "scheduler": about("Which of several external schedulers.", LABEL),
}
_OF_GPUS: Final = {"gpu_milli": ["gpus"], "models": ["gpus"]}


def _generate() -> JsonSchema:
    weight = {"weight": about("How often, beside the others; default: 1.", number())}
    length = {"duration": _drawn_duration()}
    pod = mapping(
        _ASKED | weight | length | {"gang": about("So many start together.", whole(1))},
        dependentRequired=_OF_GPUS,
    )
    drawn = mapping(
        {
            "distribution": choice(SIZES),
            "least": whole(1),
            "most": whole(1, MOST_MACHINES),
        },
        ["distribution", "most"],
    )
    job = mapping(weight | length | {"machines": any_of(whole(1), drawn), "user": LABEL})
    arrivals = mapping(
        {
            "process": about("Default: poisson.", choice(PROCESSES)),
            "over": about("All arrive within so long.", _HOW_LONG),
            "every": about("Between two arrivals.", _HOW_LONG),
            "peak": about("Of `daily`: the busiest hour beside the mean.", number(1)),
        }
    )
    arrivals["if"] = {"properties": {"process": choice(["poisson", "daily", "uniform"])}}
    arrivals["then"] = {"required": ["over"]}
    return mapping(
        {
            "name": LABEL,
            "count": whole(1, MOST_TASKS),
            "users": whole(1),
            "arrivals": arrivals,
            "duration": _drawn_duration(),
            "pods": listing(pod, 1),
            "jobs": listing(job, 1),
            "overestimate": about(
                "The walltime of jobs beside their run time.",
                mapping({"least": number(1), "most": number(1)}),
            ),
        },
        ["count", "arrivals"],
        oneOf=one_of_fields("pods", "jobs"),
        dependentRequired={"overestimate": ["jobs"]},
    )


def _drawn_duration() -> JsonSchema:
    parameters: dict[str, tuple[dict[str, JsonSchema], list[str]]] = {
        "constant": ({"value": _HOW_LONG}, ["value"]),
        "uniform": ({"least": _HOW_LONG, "most": _HOW_LONG}, ["distribution", "most"]),
        "exponential": ({"mean": _HOW_LONG}, ["distribution", "mean"]),
        "lognormal": ({"median": _HOW_LONG, "sigma": number()}, ["distribution", "median"]),
        "weibull": (
            {"scale": _HOW_LONG, "shape": {"type": "number", "exclusiveMinimum": 0}},
            ["distribution", "scale"],
        ),
    }
    drawn = [
        mapping({"distribution": {"const": name}} | own, required)
        for name, (own, required) in parameters.items()
    ]
    return any_of(_HOW_LONG, *drawn)


def _lifecycle() -> JsonSchema:
    stage = {"delay": _HOW_LONG, "jitter": _HOW_LONG}
    stages = any_of(_HOW_LONG, mapping(stage), listing(mapping({"name": LABEL} | stage, ["name"])))
    return mapping(
        {
            "start": about("Between the binding of a pod and its start.", stages),
            "release": about("Between its end and the release of its resources.", stages),
            "failure": about("The probability that a run fails.", number(0, 1)),
            "retries": whole(),
        }
    )


def _faults() -> JsonSchema:
    taint = mapping({"key": LABEL, "value": LABEL, "effect": EFFECT}, ["key", "effect"])
    fault = mapping(
        {
            "at": _HOW_LONG,
            "for": about("Default: for the rest of the run.", _HOW_LONG),
            "node": LABEL,
            "device": LABEL,
            "driver": LABEL,
            "taint": taint,
            "happens": about("As of `dralab driver run --fault help`.", LABEL),
        },
        ["at"],
        anyOf=one_of_fields("node", "happens"),
        dependentRequired={"device": ["taint"]},
        **{"not": {"required": ["happens", "taint"]}},
    )
    at_random = mapping({"every": _HOW_LONG, "repair": _HOW_LONG}, ["every", "repair"])
    return about("What goes wrong when, or how often at random.", any_of(listing(fault), at_random))


def _external() -> JsonSchema:
    words = any_of(TEXT, listing(TEXT))
    options: dict[str, Any] = {
        item.name: _option(item.default)
        for kind in (PacingOptions, ConductorOptions)
        for item in fields_of(kind)
    }
    old = {name: {**options[new], "deprecated": True} for name, new in RENAMED.items()}
    own = {
        "command": about("The scheduler to start; {kubeconfig} is replaced by its path.", words),
        "schedulers": about(
            "Several schedulers: commands by name.",
            {"type": "object", "minProperties": 1, "additionalProperties": words},
        ),
        "port": whole(0, 65_535),
        "tls": FLAG,
        "clock": about("Default: virtual.", choice([VIRTUAL, REAL])),
        "start": about("What the clock shows first: 2026-01-01T00:00:00Z.", TEXT),
        "controllers": any_of(choice([STOCK, "all"]), listing(choice(registry.CONTROLLERS))),
        "heartbeats": about("Seconds between those of a node, 0 for none.", number()),
    }
    return about("For `scheduler: external`: your own program.", mapping(own | options | old))


def _option(default: object) -> JsonSchema:
    if isinstance(default, bool):
        return {"type": "boolean", "default": default}
    if isinstance(default, (int, float)):
        return {
            "type": "integer" if isinstance(default, int) else "number",
            "minimum": 0,
            "default": default,
        }
    return {"type": "string", "default": default}
