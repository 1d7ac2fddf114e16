"""Taints as options of commands name them: KEY=VALUE:EFFECT, as in `kubectl taint`."""

from collections.abc import Collection

import click

from dralab.values.names import label_value_problems, qualified_problems

EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


def node_taint(text: str) -> dict[str, str]:
    """Return a taint of a node. UsageError: the text does not name one."""
    return _taint(text, EFFECTS)


def device_taint(text: str) -> dict[str, str]:
    """Return a taint of a device. UsageError: the text does not name one."""
    return _taint(text, [effect for effect in EFFECTS if effect != "PreferNoSchedule"])


def _taint(text: str, effects: Collection[str]) -> dict[str, str]:
    pair, _, effect = text.rpartition(":")
    key, _, value = pair.partition("=")
    problems = qualified_problems(key) + label_value_problems(value)
    if effect not in effects or problems:
        why = "; ".join(problems) or f"the effect must be one of {', '.join(effects)}"
        raise click.UsageError(f'taint "{text}": {why}')
    return {"key": key, "effect": effect} | ({"value": value} if value else {})
