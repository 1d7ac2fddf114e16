"""Edits of a problem and its objects: one change, as a user could make it.

And known shapes of mistakes in CEL selectors, each with the expression that was probably meant: it
is told when it compiles and a device meets it.
"""

import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any, Final

import orjson

from dralab.allocation.problem import (
    Device,
    DeviceSelector,
    DeviceSelectorError,
    Problem,
    SubRequest,
)
from dralab.allocation.search.alternatives import Alternative
from dralab.allocation.selectors import CelSelectorCompiler
from dralab.cel.conjuncts import Comparison
from dralab.cel.functions.patches import escape_key
from dralab.explanation.causes import Help, MarkedField
from dralab.explanation.conditions import with_each
from dralab.explanation.misses import like
from dralab.values.quantity import QuantityError
from dralab.values.quantity import parse as parse_quantity

STRICT: Final = {">", "<"}


def with_expression(
    problem: Problem, alternative: Alternative, mark: MarkedField, text: str
) -> Problem:
    """Return a problem with another expression where `mark` is: in its class or its request."""
    old = mark.text
    if mark.owner[0] == "class":
        name = mark.owner[1]
        changed = replace(
            problem.classes[name], selectors=_replaced(problem.classes[name].selectors, old, text)
        )
        return replace(problem, classes={**problem.classes, name: changed})
    return with_request(
        problem,
        alternative,
        lambda each: replace(each, selectors=_replaced(each.selectors, old, text)),
    )


def with_request(
    problem: Problem, alternative: Alternative, change: Callable[[SubRequest], SubRequest]
) -> Problem:
    """Return a problem with one alternative changed."""
    name = str(problem.claims[alternative.claim])
    return with_each(
        problem,
        lambda claim, each: (
            change(each) if (str(claim), each.name) == (name, alternative.name) else each
        ),
    )


def with_attribute(problem: Problem, position: int, number: int, name: str) -> Problem:
    """Return a problem in which one constraint of a claim compares another attribute."""
    claims = list(problem.claims)
    rules = list(claims[position].constraints)
    rules[number] = replace(rules[number], name=name)
    claims[position] = replace(claims[position], constraints=tuple(rules))
    return replace(problem, claims=tuple(claims))


def without(expression: str, part: str) -> str:
    """Return an expression without one of its parts; `true` if it was the only one."""
    for pattern in (f" && {part}", f"&& {part}", f"{part} && ", f"{part} &&"):
        if pattern in expression:
            return expression.replace(pattern, "", 1)
    return expression.replace(part, "true", 1)


def quoted(comparison: Comparison, value: str) -> str:
    """Return a value as it is written in a comparison."""
    plain = comparison.constructor or not isinstance(comparison.values[0], str)
    return value if plain else f"'{value}'"


def with_literal(expression: str, comparison: Comparison, value: str, old: str = "") -> str | None:
    """Return an expression with another literal in a comparison, None if none fits."""
    span = comparison.span
    if span is None:
        return None
    before = span.of(expression)
    sample = comparison.values[0]
    if comparison.operator in STRICT:
        value = _beyond(comparison, value)
        if not value:
            return None
    if comparison.operator == "in":
        quote = before.strip()[0] if isinstance(sample, str) else ""
        after = (
            before.replace(f"{quote}{old}{quote}", f"{quote}{value}{quote}")
            if old
            else f"{quote}{value}{quote}"
        )
    elif isinstance(sample, str):
        after = before.replace(sample, value) if sample else f'"{value}"'
    else:
        after = value
    return expression[: span.start] + after + expression[span.end :]


def _beyond(comparison: Comparison, value: str) -> str:
    """Return a threshold that a strict comparison with `value` still passes; empty if unknown."""
    step = -1 if comparison.operator == ">" else 1
    if comparison.constructor == "quantity":
        try:
            return str(parse_quantity(value) + step)
        except QuantityError:
            return ""
    whole = value.removeprefix("-").isdecimal()
    return "" if comparison.constructor or not whole else str(int(value) + step)


def _replaced(
    selectors: tuple[DeviceSelector | None, ...], old: str, text: str
) -> tuple[DeviceSelector | None, ...]:
    return tuple(
        like(each, text) if each is not None and each.text == old else each for each in selectors
    )


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
    """Return a probable correction of an expression; empty if no known repair fits a device.

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


STEP: Final = re.compile(r"([^.\[\]]+)|\[([^\]]*)\]")
KINDS: Final = {
    "claim": "ResourceClaim", "class": "DeviceClass", "group": "PodGroup", "pod": "Pod",
}  # fmt: skip
"""The kinds of the objects that helps and places are about."""
REPLACED: Final = frozenset({"spelling", "guard", "value", "count", "constraint"})


def patch_of(found: Help) -> list[dict[str, Any]]:
    """Return a help as a JSON patch (RFC 6902) of the object of its mark; empty if it has none.

    >>> from dralab.explanation.causes import MarkedField
    >>> mark = MarkedField(owner=("claim", "ml/c"), field="spec.devices.requests[0].exactly.count")
    >>> patch_of(Help(kind="count", number=2, mark=mark))
    [{'op': 'replace', 'path': '/spec/devices/requests/0/exactly/count', 'value': 2}]
    """
    mark = found.mark
    if mark is None or not mark.field:
        return []
    if found.edits:
        return [dict(each) for each in found.edits]
    path = pointer(mark.field)
    if found.kind == "count":
        return [{"op": "replace", "path": path, "value": found.number}]
    if found.kind == "tolerate":
        key, _, effect = found.to.rpartition(":")
        name, equals, value = key.partition("=")
        toleration = {"key": name, "operator": "Equal" if equals else "Exists", "effect": effect}
        toleration |= {"value": value} if equals else {}
        if found.note == "first":
            return [{"op": "add", "path": path, "value": [toleration]}]
        return [{"op": "add", "path": f"{path}/-", "value": toleration}]
    if found.kind == "drop" and not mark.text:
        return [{"op": "remove", "path": path}]
    if found.kind in REPLACED or found.kind == "drop":
        return [{"op": "replace", "path": path, "value": mark.text}]
    return []


def command_of(found: Help, templates: Mapping[str, str]) -> str:
    """Return a command that does what a help says; empty if there is none.

    `templates` names the template of claims that were made from one. The spec of claims and
    templates cannot change: they are deleted and created again.
    """
    if found.command or found.mark is None:
        return found.command
    patch = patch_of(found)
    if not patch:
        return ""
    kind, name = found.mark.owner
    resource = KINDS[kind].lower()
    if kind == "claim" and name in templates:
        resource, name = "resourceclaimtemplate", templates[name]
        patch = [each | {"path": f"/spec{each['path']}"} for each in patch]
    namespace, _, short = name.rpartition("/")
    where = f" -n {namespace}" if namespace and namespace != "default" else ""
    given = shlex.quote(orjson.dumps(patch).decode())
    if kind == "class":
        return f"kubectl patch {resource} {short} --type=json -p {given}"
    return (
        f"kubectl get {resource} {short}{where} -o yaml | kubectl patch --local -f - --type=json "
        f"-p {given} -o yaml | kubectl replace --force -f -"
    )


def pointer(field: str) -> str:
    """Return a field path as a JSON pointer.

    >>> pointer("spec.capacity.requests[a.b/c].x[0]")
    '/spec/capacity/requests/a.b~1c/x/0'
    """
    return "".join(f"/{escape_key(plain or inside)}" for plain, inside in STEP.findall(field))
