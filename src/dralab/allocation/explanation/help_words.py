"""What would help, as a person would say it."""

from collections.abc import Mapping, Sequence

from dralab.allocation.explanation.causes import Help
from dralab.allocation.explanation.names import counted, joined, shortened


def help_text(found: Help, holders: Mapping[str, str] | None = None) -> str:
    """Return what somebody could do; `holders` names the pods that hold claims."""
    names = [(holders or {}).get(name, f"claim {shortened(name)}") for name in found.who]
    text = _help(found, list(dict.fromkeys(names)))
    if found.kind in {"spelling", "value", "drop"} and found.devices:
        match = "matches" if found.devices == 1 else "match"
        numbers = f"{counted(found.devices, 'device')} {match}, {found.free} free"
        text += f" {numbers}" if found.kind == "spelling" else f": {numbers}"
    if not found.now and found.kind not in {"add", "wait", "spelling"}:
        text += " (then it waits for devices in use)"
    return text


def _help(found: Help, names: Sequence[str]) -> str:
    match found.kind:
        case "spelling":
            return f"did you mean {found.to}?"
        case "wait" if found.note == "any" and len(names) > 1:
            return f"wait until {joined(names, 'or')} ends: each is enough"
        case "wait":
            return f"wait until {joined(names)} {'ends' if len(names) == 1 else 'end'}"
        case "value":
            return f"ask for {found.to}"
        case "count":
            return " ".join(["ask for", counted(found.number, "device"), found.note]).rstrip()
        case "move":
            return f"move {joined(names)} to {found.to}"
        case "preempt":
            return f"preempt {joined(names)}"
        case _:
            return _plain(found)


def _plain(found: Help) -> str:
    match found.kind:
        case "constraint":
            return f"use {found.to} instead of {found.note}"
        case "tolerate":
            return f"tolerate taint {found.to}"
        case "drop":
            return f"leave out {found.to}"
        case _:
            return found.to
