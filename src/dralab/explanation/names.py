"""Names and numbers as people write them, and names that are nearly equal."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from typing import Final

from dralab.allocation.problem import Attribute, DeviceId, DevicePath
from dralab.objects.device_taints import DeviceTaint
from dralab.values.quantity import Number, parse_any, render

MOST_NAMES: Final = 3
NEAR: Final = 0.6
SIGNS: Final = {">=": "≥", "<=": "≤", "==": "=", "!=": "≠"}


def listed(names: Iterable[str], most: int = MOST_NAMES) -> str:
    """Return a few names and how many more there are.

    >>> listed(["a", "b", "c", "d"], most=2)
    'a, b and 2 more'
    """
    every = list(names)
    if len(every) <= most:
        return ", ".join(every)
    return f"{', '.join(every[:most])} and {len(every) - most} more"


def counted(count: int, word: str) -> str:
    """Return a number of things.

    >>> counted(1, "device"), counted(2, "class")
    ('1 device', '2 classes')
    """
    return f"{count} {word if count == 1 else plural(word)}"


def plural(word: str) -> str:
    """Return the plural of a word."""
    return f"{word}es" if word.endswith(("s", "x")) else f"{word}s"


def of_class(count: int, name: str) -> str:
    """Return a number of devices of a class.

    >>> of_class(1, "gpu"), of_class(3, "gpu"), of_class(3, "gpu.example.com")
    ('1 gpu', '3 gpus', '3 devices of class gpu.example.com')
    """
    if not name:
        return counted(count, "device")
    if "." in name:
        return f"{counted(count, 'device')} of class {name}"
    return counted(count, name)


def amount(number: Number) -> str:
    """Return a number as a person would write it.

    >>> amount(40 * 2**30), amount(1500)
    ('40Gi', '1500')
    """
    if number.denominator == 1 and number >= 1 << 20 and number % (1 << 20) == 0:
        return render(number, "BinarySI")
    return str(number) if number.denominator == 1 else render(number)


def shown_value(value: Attribute | Number | str) -> str:
    """Return the value of an attribute or a capacity, without quotes."""
    if isinstance(value, str):
        return value
    if isinstance(value, Attribute) and value.type == "quantity":  # of older generations
        return amount(parse_any(value.values[0]))
    if isinstance(value, Attribute):
        shown = [
            "true" if item is True else "false" if item is False else str(item)
            for item in value.values
        ]
        return f"[{', '.join(shown)}]" if value.listed else shown[0] if shown else ""
    return amount(value)


def device_name(device: DeviceId, node: str = "") -> str:
    """Return a device as people look for it: `node/device`, or with its pool.

    >>> device_name(DeviceId("gpu.example.com", "node-a", "gpu-1"), "node-a")
    'node-a/gpu-1'
    """
    pool = device.pool_shown
    return f"{node if node and pool.startswith(node) else pool}/{device.device}"


def taint_text(taint: DeviceTaint) -> str:
    """Return a taint as kubectl writes it: `key=value:effect`."""
    value = f"={taint.value}" if taint.value else ""
    return f"{taint.key}{value}:{taint.effect}"


def short_path(path: DevicePath) -> str:
    """Return how a person calls what stands at a path: the last part of its name.

    >>> short_path(("attributes", "gpu.example.com", "model")), short_path(("driver",))
    ('model', 'driver')
    """
    return path[-1] if path else "device"


def similar(word: str, known: Iterable[str]) -> str:
    """Return the known word that was probably meant, empty if none is near.

    >>> similar("hopper", ["Hopper", "Ada"]), similar("gpux", ["gpu", "nic"]), similar("x", ["y"])
    ('Hopper', 'gpu', '')
    """
    every = [each for each in dict.fromkeys(known) if each != word]
    lowered = {each.lower(): each for each in reversed(every)}
    found = get_close_matches(word.lower(), lowered, n=1, cutoff=NEAR)
    return lowered[found[0]] if found else ""


def joined(names: Sequence[str], word: str = "and") -> str:
    """Return names as an enumeration.

    >>> joined(["a", "b", "c"])
    'a, b and c'
    """
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} {word} {names[-1]}"


def shortened(name: str) -> str:
    """Return the name of an object without its namespace where that is `default`."""
    return name.removeprefix("default/")
