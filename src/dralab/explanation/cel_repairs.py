"""Known shapes of mistakes in CEL selectors, each with the expression that was probably meant.

A repair is only a proposal: it is told when the new expression compiles and a device meets it.
"""

import re
from collections.abc import Iterable, Iterator
from typing import Final

from dralab.allocation.problem import Device, DeviceSelectorError
from dralab.allocation.selectors import CelSelectorCompiler

COMPILER: Final = CelSelectorCompiler()
TEXT: Final = r"""(?:"[^"]*"|'[^']*')"""
PATH: Final = rf"device\.(?:attributes|capacity)\[{TEXT}\](?:\.\w+|\[{TEXT}\])"
ORDER: Final = r"(>=|<=|==|!=|>|<)"
WRITTEN: Final = (
    # Versions and quantities are compared by a function.
    (rf"({PATH})\s*{ORDER}\s*(?:semver\()?({TEXT})\)?", r"\1.compareTo(semver(\3)) \2 0"),
    (rf"({PATH})\s*{ORDER}\s*(?:quantity\()?({TEXT})\)?", r"\1.compareTo(quantity(\3)) \2 0"),
    (rf"\.compareTo\(({TEXT})\)", r".compareTo(quantity(\1))"),
    (rf"\.compareTo\(({TEXT})\)", r".compareTo(semver(\1))"),
    # An attribute is its value: the fields of a ResourceSlice are not part of the path.
    (rf"({PATH})\.(?:string|int|bool|version|value)(?:Value)?\b", r"\1"),
    # Numbers and truth values have no quotes.
    (rf"({PATH})\s*{ORDER}\s*[\"'](-?\d+|true|false)[\"']", r"\1 \2 \3"),
    (rf"({PATH})\s*{ORDER}\s*(-?\d+)\b(?!\s*\))", r'\1 \2 "\3"'),
    # Other languages write operators in other ways.
    (r"\s+and\s+", " && "),
    (r"\s+or\s+", " || "),
    (r"(?<![=!<>])=(?!=)", "=="),
)
UNQUALIFIED: Final = (
    r"""device\.(attributes|capacity)\.(\w+)(?!\s*[\[.(]\s*["'\w])""",
    r"""device\.(attributes|capacity)\[["'](?:[\w.-]+/)?(\w+)["']\]"""
    r"(?:\.(?:string|int|bool|version|value)\b)?(?!\s*[\[.])",
)


def repaired(expression: str, devices: Iterable[Device]) -> str:
    """Return the expression that was probably meant; empty if no known repair suits a device.

    >>> from dralab.allocation.problem import Attribute
    >>> model = {"x.com/model": Attribute("string", ("A100",))}
    >>> one = Device(name="d", driver="x.com", attributes=model)
    >>> repaired('device.attributes["model"] == "A100"', [one])
    'device.attributes["x.com"].model == "A100"'
    """
    examples = list(devices)
    for text in _candidates(expression, examples):
        if text != expression and _suits(text, examples):
            return text
    return ""


def _candidates(expression: str, devices: Iterable[Device]) -> Iterator[str]:
    for pattern, written in WRITTEN:
        yield re.sub(pattern, written, expression)
    for pattern in UNQUALIFIED:
        for found in re.finditer(pattern, expression):
            sort, name = found[1], found[2]
            for domain in _domains(sort, name, devices):
                path = f'device.{sort}["{domain}"].{name}'
                yield expression[: found.start()] + path + expression[found.end() :]


def _domains(sort: str, name: str, devices: Iterable[Device]) -> list[str]:
    """Return the domains in which devices have an attribute or a capacity of a name."""
    found: dict[str, None] = {}
    for device in devices:
        for full in device.attributes if sort == "attributes" else device.capacity:
            domain, _, short = full.partition("/")
            if short == name:
                found[domain] = None
    return list(found)


def _suits(text: str, devices: Iterable[Device]) -> bool:
    selector = COMPILER.selector(text)
    if getattr(selector, "message", ""):
        return False
    for device in devices:
        try:
            if selector.matches(device):
                return True
        except DeviceSelectorError:
            continue
    return False
