"""What would help, as a person would say it."""

from collections.abc import Mapping, Sequence

from dralab.explanation.causes import Help
from dralab.explanation.names import counted, joined, listed, shortened
from dralab.explanation.words import reason_text
from dralab.scheduling.reasons import NO_DEVICES, Reason


def help_text(found: Help, holders: Mapping[str, str] | None = None) -> str:
    """Return what a user could do; `holders` names the pods that hold claims."""
    names = [_named(name, holders or {}) for name in found.who]
    text = _help(found, list(dict.fromkeys(names)), holders or {})
    if found.kind in {"value", "drop"} and found.note:
        text += f" {found.note}"
    if found.kind in {"spelling", "value", "drop", "guard"} and found.devices:
        match = "matches" if found.devices == 1 else "match"
        numbers = f"{counted(found.devices, 'device')} {match}, {found.free} free"
        text += f" {numbers}" if found.kind == "spelling" else f": {numbers}"
    if found.lacking and not any(each.rule is NO_DEVICES for each, _ in found.lacking):
        text += f" (not enough: then {listed(map(_lacking, found.lacking))})"
    elif not found.now and found.kind not in {"add", "wait", "spelling"}:
        text += " (then it waits for devices in use)"
    return text


def _lacking(item: tuple[Reason, int]) -> str:
    """Return what is missing on so many nodes; 0: on all of them."""
    reason, count = item
    return f"{counted(count, 'node')} {reason_text(reason, count)}" if count else str(reason)


def _named(name: str, holders: Mapping[str, str]) -> str:
    """Return what people call a claim (its pod), or a pod that is named itself: `pod ml/train`."""
    if name.startswith("pod "):
        return shortened(name.removeprefix("pod "))
    return holders.get(name, f"claim {shortened(name)}")


def _help(found: Help, names: Sequence[str], holders: Mapping[str, str]) -> str:
    match found.kind:
        case "spelling":
            return f"did you mean {found.to}?"
        case "count" if not found.to:
            return " ".join(["ask for", counted(found.number, "device"), found.note]).rstrip()
        case "guard" | "count":
            return f"write {found.to}"
        case "wait" if found.note == "any" and len(names) > 1:
            first = f"; {names[0]} ends first: {found.ends}" if found.ends else ""
            return f"wait until {joined(names, 'or')} ends: each is enough{first}"
        case "wait":
            ends = f" ({found.ends})" if found.ends else ""
            return f"wait until {joined(names)} {'ends' if len(names) == 1 else 'end'}{ends}"
        case "value":
            return f"ask for {found.to}"
        case "move":
            return f"move {joined(names)} from {found.note} to {found.to}"
        case "several":
            return f"together: {'; '.join(help_text(each, holders) for each in found.parts)}"
        case "preempt" if not found.note:
            lower = "its priority is" if len(names) == 1 else "their priorities are"
            return f"delete {joined(names)}: {lower} lower ({found.to})"
        case "preempt":
            text = f"the scheduler preempts {joined(names)} {found.note} ({found.to})"
        case _:
            text = _plain(found)
    return text


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
