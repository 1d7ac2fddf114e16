"""Rules of objects: tables of what the fields of a struct must be, in the order of upstream.

A table is bound to the function of Kubernetes that it stands for, and is itself called with a
value and its path, as every check is. So tables hold tables, and each rule has an address:

>>> port = Ruleset(
...     "core.validateContainerPorts",
...     needs("containerPort", between(1, 65535)),
...     needs("protocol", one_of("SCTP", "TCP", "UDP")),
... )
>>> [str(error) for error in port({"containerPort": 0, "protocol": "X"}, "ports[0]")]
['ports[0].containerPort: Required value', \
'ports[0].protocol: Unsupported value: "X": supported values: "SCTP", "TCP", "UDP"']
>>> [address for address, _ in port.addresses()][:2]
['core.validateContainerPorts/containerPort/required', \
'core.validateContainerPorts/containerPort/between-1-and-65535']

What two fields must be together is a plain function in a table, named by its name. A check with a
third parameter gets what else is known: the object before a change, or what surrounds a struct.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final, NamedTuple

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.values import names
from dralab.values.json_types import JsonObject

Check = Callable[..., list[FieldError]]

MOST_PLANS: Final = 64
OPTIONAL, FILLED, NEEDED, ITEMS, PRESENT, WHERE = range(6)


class FieldRule(NamedTuple):
    """Checks of one field, or of the struct itself if it has no `name`.

    `need` tells what becomes of a field that is absent or empty; `absent` stands for it, `why` says
    what is required. `shown` is the name in paths. Items of a list differ in the field `unique`.
    """

    name: str
    checks: tuple[Check, ...]
    need: int = OPTIONAL
    absent: Any = None
    why: str = ""
    unique: str = ""
    shown: str = ""


def field(name: str, *checks: Check, absent: Any = None, shown: str = "") -> FieldRule:
    """Check a field that is there; `absent` stands for one that is not."""
    return FieldRule(name, checks, absent=absent, shown=shown)


def filled(name: str, *checks: Check, shown: str = "") -> FieldRule:
    """Check a field that is not empty."""
    return FieldRule(name, checks, FILLED, shown=shown)


def needs(name: str, *checks: Check, why: str = "", shown: str = "") -> FieldRule:
    """Check a field that may not be absent or empty."""
    return FieldRule(name, checks, NEEDED, why=why, shown=shown)


def present(name: str, *checks: Check, why: str = "", shown: str = "") -> FieldRule:
    """Check a field that may be empty, but not absent."""
    return FieldRule(name, checks, PRESENT, why=why, shown=shown)


def items(name: str, *checks: Check, unique: str = "", shown: str = "") -> FieldRule:
    """Check each item of a list."""
    return FieldRule(name, checks, ITEMS, unique=unique, shown=shown)


def where(name: str, *checks: Check) -> FieldRule:
    """Check the struct itself if it has that field."""
    return FieldRule(name, checks, WHERE)


class _RuleStep(NamedTuple):
    """One check of a rule, as the loop takes it: `known` are values that need no call."""

    name: str
    shown: str
    need: int
    absent: Any
    why: str
    known: tuple[str, ...]
    check: Check | None
    takes_more: bool


_Plan = list[tuple[str, tuple[str, ...], Any, bool, _RuleStep]]


class Ruleset:
    """A table: checks of a struct and of its fields, in the order in which errors are told."""

    def __init__(self, source: str, *rules: FieldRule | Check) -> None:
        self.source = source
        self.rules = [
            rule if isinstance(rule, FieldRule) else FieldRule("", (rule,)) for rule in rules
        ]
        self._steps = [step for rule in self.rules for step in _steps(rule)]
        self._plans: dict[tuple[str, ...], _Plan] = {}

    def __call__(self, value: JsonObject, path: str, more: Any = None) -> list[FieldError]:
        """Return what is wrong with a struct."""
        errors: list[FieldError] = []
        # Structs of the same fields are looked at in the same way: most are a few of many fields.
        steps = self._plans.get(tuple(value)) or self._plan(value)
        for name, known, check, takes_more, step in steps:
            if name:
                part = value.get(name)
                if part in known:
                    continue
                if not part:
                    if step.need == NEEDED or (step.need == PRESENT and part is None):
                        at = f"{path}.{step.shown}" if path else step.shown
                        errors.append(fields.required(at, step.why))
                        continue
                    if step.need in {FILLED, ITEMS}:
                        continue
                    if part is None:
                        part = step.absent
                        if part is None:
                            continue
                if check is None:
                    continue
                at = f"{path}.{step.shown}" if path else step.shown
            else:
                part, at = value, path
            if found := check(part, at, more) if takes_more else check(part, at):
                errors += found
        return errors

    def _plan(self, value: JsonObject) -> _Plan:
        """Return the steps that a struct of these fields needs."""
        if len(self._plans) >= MOST_PLANS:
            self._plans.clear()
        steps = [
            ("" if step.need == WHERE else step.name, step.known, step.check, step.takes_more, step)
            for step in self._steps
            if not step.name
            or step.name in value
            or step.need in {NEEDED, PRESENT}
            or step.absent is not None
        ]
        self._plans[tuple(value)] = steps
        return steps

    def addresses(self) -> Iterator[tuple[str, Check | None]]:
        """Yield the address of each rule and its check; that of a required field has none."""
        for rule in self.rules:
            named = rule.name and rule.need != WHERE
            at = f"{self.source}/{rule.name}/" if named else f"{self.source}/"
            if rule.need in {NEEDED, PRESENT}:
                yield f"{at}required", None
            if rule.unique:
                yield f"{at}unique-{rule.unique}", None
            for check in rule.checks:
                yield at + name_of(check), check


def _steps(rule: FieldRule) -> Iterator[_RuleStep]:
    checks: Sequence[Check | None] = rule.checks
    if rule.need == ITEMS:
        checks = [_each(rule)]
    need, later = rule.need, {NEEDED: FILLED, PRESENT: OPTIONAL}
    for check in checks or [None]:
        more = rule.need == ITEMS or (check is not None and _takes_more(check))
        known = getattr(check, "known", ())
        shown = rule.shown or rule.name
        yield _RuleStep(rule.name, shown, need, rule.absent, rule.why, known, check, more)
        need = later.get(need, need)


def _each(rule: FieldRule) -> Check:
    """Return the check of a list by the checks of its items."""
    checks, unique = [(check, _takes_more(check)) for check in rule.checks], rule.unique

    def each(values: Sequence[Any], path: str, more: Any) -> list[FieldError]:
        errors: list[FieldError] = []
        seen = set()
        for index, item in enumerate(values):
            at = f"{path}[{index}]"
            for check, takes_more in checks:
                errors += check(item, at, more) if takes_more else check(item, at)
            if unique:
                if (key := item.get(unique) or "") in seen:
                    errors.append(fields.duplicate(f"{at}.{unique}", key))
                seen.add(key)
            if len(errors) > fields.MAX_ERRORS:
                break
        return errors

    return each


def _takes_more(check: Check) -> bool:
    if isinstance(check, Ruleset):
        return True
    return check.__code__.co_argcount - len(check.__defaults__ or ()) > 2


def name_of(check: Check) -> str:
    """Return the last part of a rule's address, such as `at-least-0`."""
    if isinstance(check, Ruleset):
        return check.source
    return check.__name__.strip("_").replace("_", "-")


def one_of(*known: str, ordered: bool = False) -> Check:
    """A value is one of those known, which errors list sorted unless they are `ordered`."""

    def check(value: Any, path: str) -> list[FieldError]:
        if value in known:
            return []
        return [fields.not_supported(path, value, known, ordered=ordered)]

    check.__name__, check.known = f"one-of-{'-'.join(known)}", known  # type: ignore[attr-defined]
    return check


def at_least(low: int, why: str = "") -> Check:
    """A number is not below a bound."""
    why = why or f"must be greater than or equal to {low}"

    def check(value: int, path: str) -> list[FieldError]:
        return [] if value >= low else [fields.invalid_value(path, value, why)]

    check.__name__ = f"at-least-{low}"
    return check


def at_most(high: int, why: str = "") -> Check:
    """A number is not above a bound."""
    why = why or f"must be less than or equal to {high}"

    def check(value: int, path: str) -> list[FieldError]:
        return [] if value <= high else [fields.invalid_value(path, value, why)]

    check.__name__ = f"at-most-{high}"
    return check


def between(low: int, high: int, why: str = "") -> Check:
    """A number is within bounds."""
    why = why or f"must be between {low} and {high}, inclusive"

    def check(value: int, path: str) -> list[FieldError]:
        return [] if low <= value <= high else [fields.invalid_value(path, value, why)]

    check.__name__ = f"between-{low}-and-{high}"
    return check


def text(problems: Callable[[Any], Sequence[str]]) -> Check:
    """A text has a form: `problems` returns why it has not."""

    def check(value: str, path: str) -> list[FieldError]:
        return fields.each(path, value, problems(value))

    check.__name__ = problems.__name__.removesuffix("_problems")
    return check


def at_most_bytes(most: int) -> Check:
    """A text is not longer."""

    def check(value: str, path: str) -> list[FieldError]:
        return [fields.too_long(path, most)] if len(value.encode()) > most else []

    check.__name__ = f"at-most-{most}-bytes"
    return check


def forbidden(why: str) -> Check:
    """A field is not there."""

    def check(value: Any, path: str) -> list[FieldError]:  # noqa: ARG001 - it is there
        return [fields.forbidden(path, why)]

    check.__name__ = "forbidden"
    return check


def holds(condition: Callable[[Any], Any], why: str, name: str) -> Check:
    """A value meets a condition, which is called `name`."""

    def check(value: Any, path: str) -> list[FieldError]:
        return [] if condition(value) else [fields.invalid_value(path, value, why)]

    check.__name__ = name
    return check


def required_if(name: str, condition: Callable[[Any], Any], why: str = "") -> Check:
    """Where a struct is so, a field is missing; the struct itself if there is no `name`."""

    def check(value: JsonObject, path: str) -> list[FieldError]:
        return [fields.required(_below(path, name), why)] if condition(value) else []

    check.__name__ = f"{name}-required-if"
    return check


def forbidden_if(name: str, condition: Callable[[Any], Any], why: str) -> Check:
    """Where a struct is so, a field may not be there."""

    def check(value: JsonObject, path: str) -> list[FieldError]:
        return [fields.forbidden(_below(path, name), why)] if condition(value) else []

    check.__name__ = f"{name}-forbidden-if"
    return check


def invalid_if(
    name: str,
    condition: Callable[[Any], Any],
    why: str,
    *,
    value: Callable[[Any], Any] | None = None,
) -> Check:
    """Where a struct is so, a field is wrong; `value` returns what errors show of the struct."""

    def check(holder: JsonObject, path: str) -> list[FieldError]:
        if not condition(holder):
            return []
        shown = value(holder) if value else holder.get(name)
        return [fields.invalid_value(_below(path, name), shown, why)]

    check.__name__ = f"{name}-invalid-if"
    return check


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path and name else path or name


def immutable(*paths: str, shown: Callable[[Any], Any] = lambda value: value) -> Check:
    """Fields of an object, by their paths, are as they were."""
    parts = [(path, path.split(".")) for path in paths]

    def check(value: JsonObject, path: str, old: JsonObject) -> list[FieldError]:
        return [
            fields.invalid_value(f"{path}{name}", shown(_at(value, keys)), "field is immutable")
            for name, keys in parts
            if _at(value, keys) != _at(old, keys)
        ]

    check.__name__ = f"immutable-{'-'.join(paths)}"
    return check


def _at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = (value or {}).get(key)
    return value


def label(value: str, path: str) -> list[FieldError]:
    """A text is a DNS label."""
    return [] if names.is_label(value) else fields.each(path, value, names.label_problems(value))


def qualified(value: str, path: str) -> list[FieldError]:
    """A text is a qualified name."""
    if names.is_qualified(value):
        return []
    return fields.each(path, value, names.qualified_problems(value))


subdomain: Final = text(names.subdomain_problems)
