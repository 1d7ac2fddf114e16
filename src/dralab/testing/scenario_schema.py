"""The JSON schema of scenario files of trials: what `scenario.load` reads."""

from typing import Final

from dralab.controllers import registry
from dralab.drivers.catalog import DRIVERS
from dralab.simulation.schemas.field_words import DURATION, LABEL, QUANTITY
from dralab.testing.faults import DEFAULT_MOST, FAULTS
from dralab.testing.scenario import LISTS, MOST_REPLICAS, WHEN
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
    one_of_fields,
    whole,
)

_HOW_LONG: Final = {"$ref": "#/$defs/duration"}
_TARGET: Final = {"$ref": "#/$defs/target"}
_FAULTS: Final = listing({"$ref": "#/$defs/fault"})
_DRIVERS: Final = listing(choice(DRIVERS))


def schema() -> JsonSchema:
    """Return the JSON schema of scenario files."""
    faults = {
        "allow": _FAULTS,
        "forbid": _FAULTS,
        "most": about(f"Faults of one trial; default: {DEFAULT_MOST}.", whole(1)),
    }
    limits = {
        "quiet": about("For so long nothing changes at the end.", _HOW_LONG),
        "settle": about("Time to come to rest after the faults.", _HOW_LONG),
        "steps": whole(1),
        "wall": about("Real time of one trial.", _HOW_LONG),
        "memory": about("A quantity such as 2Gi.", QUANTITY),
    }
    body = mapping(
        {
            "name": about("How reports name it; default: the name of the file.", LABEL),
            "programs": about("The programs under test.", listing(_program(), 1)),
            "manifests": about("Objects that exist before the programs start.", listing(FILE)),
            "script": about("What a user does, step by step.", listing(_step())),
            "cluster": _cluster(),
            "faults": mapping(faults),
            "invariants": about("What must hold.", listing(_invariant())),
            "ignore": about(
                "Not compared: configmaps, or a path: example.com/sites:status.port.", listing(TEXT)
            ),
            "limits": mapping(limits),
        },
        ["programs"],
    )
    return document(
        "Scenario of dralab dst",
        "Programs, what a user does, and what must hold under faults: `dralab dst run FILE`.",
        body,
        duration=about("Seconds, or 90s, 1h30m, 7d.", DURATION),
        fault=choice(FAULTS),
        target=_target(),
    )


def _program() -> JsonSchema:
    forms = {
        "python": about(
            "file.py:Class, called with a dralab.runtime.manager.Manager, or file.py:main, a "
            "coroutine function.",
            PYTHON,
        ),
        "controller": about("One of dralab's controllers.", choice(registry.CONTROLLERS)),
        "scheduler": about("dralab's scheduler.", {"const": True}),
        "nodes": about("dralab's simulated nodes.", whole(1)),
        "command": about(
            "A program under the virtual clock; {kubeconfig} and {server} are replaced.",
            listing(TEXT, 1),
        ),
    }
    more = {
        "name": LABEL,
        "drivers": about("Drivers on these nodes.", _DRIVERS),
        "replicas": whole(1, MOST_REPLICAS),
        "lists": about("cached: first lists may be old, as with resourceVersion=0.", choice(LISTS)),
    }
    return mapping(forms | more, oneOf=one_of_fields(*forms))


def _step() -> JsonSchema:
    return mapping(
        {
            "after": about("Since the step before; default: 5s.", _HOW_LONG),
            "apply": any_of(LABEL, listing(TEXT)),
            "patch": _TARGET,
            "with": about("A merge patch.", {"type": "object"}),
            "subresource": about("What is patched: status, approval.", LABEL),
            "scale": _TARGET,
            "replicas": whole(),
            "delete": _TARGET,
            "wait": _HOW_LONG,
        },
        oneOf=one_of_fields("apply", "patch", ("scale", "replicas"), "delete", "wait"),
        dependentRequired={"with": ["patch"], "subresource": ["patch"], "replicas": ["scale"]},
    )


def _cluster() -> JsonSchema:
    return about(
        "What runs beside the programs, without faults.",
        mapping(
            {
                "controllers": about(
                    "Names of dralab's controllers; default: all.",
                    any_of(FLAG, listing(choice(registry.CONTROLLERS))),
                ),
                "scheduler": FLAG,
                "version": about('The release of Kubernetes, such as "1.34".', TEXT),
                "nodes": whole(),
                "drivers": _DRIVERS,
            }
        ),
    )


def _invariant() -> JsonSchema:
    return mapping(
        {
            "name": LABEL,
            "apiVersion": about("Default: v1.", LABEL),
            "kind": LABEL,
            "expression": about("CEL over object and oldObject.", LABEL),
            "when": choice(WHEN),
            "python": about("file.py:function of the objects at the end and the history.", PYTHON),
        },
        oneOf=one_of_fields(("expression", "kind"), "python"),
        dependentRequired={key: ["expression"] for key in ("apiVersion", "kind", "when")},
    )


def _target() -> JsonSchema:
    return mapping(
        {
            "apiVersion": LABEL,
            "kind": LABEL,
            "namespace": LABEL,
            "name": LABEL,
            "selector": LABEL,
            "most": about("So many of the selected; default: all.", whole()),
        },
        ["apiVersion", "kind"],
        oneOf=one_of_fields("name", "selector"),
        dependentRequired={"most": ["selector"]},
    )
