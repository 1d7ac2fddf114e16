"""Rules of objects: what the fields of a struct must be, in the order of upstream.

Rules are data, in `NAME.rules` beside `NAME.py`: a table for each function of Kubernetes'
validation, a line for each field. A table is called with a struct and its path, as checks are.

    group core: pkg/apis/core/validation

    [validateContainerPorts]
    containerPort  required, port_number
    protocol       required, one of SCTP TCP UDP
    .              invalid if hostNetwork and hostPort != containerPort: must match `containerPort`

A line is a field, then clauses, then after a colon what is said instead of the usual words. A
field is a path with dots, or `.` for the struct itself; clauses are taken from left to right:

    required, present         the field may not be empty; may not be absent
    filled, each, each by K   only if it is not empty; each item of a list; which differ in K
    or VALUE                  what stands for a field that is absent, which is skipped otherwise
    as NAME                   the name of the field in errors
    at least N, at most N, N to M, at most N bytes, one of A B (in the order of errors)
    forbidden                 the field may not be there
    immutable                 the field of a changed object is as it was
    required if, forbidden if, invalid if EXPRESSION       of the struct
    holds EXPRESSION                                       of the value, which is `it`
    showing EXPRESSION        what the error before shows as the value
    given FIELD               of the struct, only where that field is there
    any other word            a table, or a check: a function of a value and its path

Names in an expression are fields; those that are called are functions. A check with a third
parameter gets what else is known: the object before a change, or what surrounds a struct.
"""

import ast
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.values import names, quantity
from dralab.values.json_types import JsonObject

Check = Callable[..., list[FieldError]]

MOST_PLANS: Final = 64
NEEDS: Final = ("required", "present", "filled")
OPTIONS: Final = ("as", "or", "given", "showing")
SKIPPED_IF: Final = ("filled", "each")
IMMUTABLE: Final = "field is immutable"
MODULES: Final = {"names": names, "quantity": quantity}
BUILTINS: Final = {"len": len, "any": any, "set": set, "sorted": sorted, "list": list, "map": map}
CLAUSES: Final = re.compile(r", (?![^()]*\))")  # a comma in parentheses ends none
CONDITION: Final = re.compile(r"(required|forbidden|invalid) if (.+)")
NUMBERS: Final = re.compile(r"(?:(-?\d+) to|at least|at most) (-?\d+)( bytes)?")
# The clauses that say what a line has after its colon.
TELLING: Final = re.compile(
    r"(?!.* bytes$)(at least|at most|-?\d+ to|forbidden|holds|\w+ if) ?|immutable"
)


class RuleError(ValueError):
    """A line of a table that is not a valid rule."""


class FieldRule(NamedTuple):
    """One check of one field: of the struct itself if it has no `name`.

    `need` tells what becomes of a field that is absent or empty; `absent` stands for it, `why` is
    said of one that is required. `shown` is the name in errors. `given` is a field without which
    the check of a struct is skipped. `called` is the last part of the rule's address.
    """

    name: str
    shown: str
    need: str
    absent: Any
    why: str
    given: str
    check: Check | None
    takes_more: bool
    known: tuple[str, ...]
    called: str


_Plan = list[tuple[str, tuple[str, ...], Any, bool, FieldRule]]


class Ruleset:
    """A table of rules; `function` is the one of upstream that it stands for."""

    def __init__(
        self,
        function: str,
        load: Callable[[], Sequence[FieldRule]] = tuple,
        tables: "RuleTables | None" = None,
    ) -> None:
        self.function, self.tables, self._load = function, tables, load
        self._plans: dict[tuple[str, ...], _Plan] = {}

    @property
    def source(self) -> str:
        """Upstream's function in its group, such as `core.ValidatePodSpec`."""
        return f"{self.tables.group[0]}.{self.function}" if self.tables else self.function

    @cached_property
    def rules(self) -> Sequence[FieldRule]:
        """The rules; they are read when they are first asked for."""
        return self._load()

    @cached_property
    def checks(self) -> Mapping[str, Check]:
        """The checks by their fields, of a struct of which one field is chosen."""
        found: dict[str, Check] = {}
        for rule in self.rules:
            if rule.name and rule.check:
                found[rule.name] = rule.check
            elif isinstance(rule.check, Ruleset):
                found |= rule.check.checks
        return found

    def __call__(self, value: JsonObject, path: str, more: Any = None) -> list[FieldError]:
        """Return the errors of a struct."""
        errors: list[FieldError] = []
        # Structs of the same fields are looked at in the same way: most are a few of many fields.
        steps = self._plans.get(tuple(value))
        for name, known, check, takes_more, rule in self._plan(value) if steps is None else steps:
            if name:
                part = value.get(name)
                if part in known:
                    continue
                if not part:
                    if rule.need == "required" or (rule.need == "present" and part is None):
                        at = f"{path}.{rule.shown}" if path else rule.shown
                        errors.append(fields.required(at, rule.why))
                        continue
                    if rule.need in SKIPPED_IF:
                        continue
                    if part is None:
                        part = rule.absent
                        if part is None:
                            continue
                if check is None:
                    continue
                at = f"{path}.{rule.shown}" if path else rule.shown
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
            (rule.name, rule.known, rule.check, rule.takes_more, rule)
            for rule in self.rules
            if (not rule.name and (not rule.given or rule.given in value))
            or rule.name in value
            or rule.need in {"required", "present"}
            or rule.absent is not None
        ]
        self._plans[tuple(value)] = steps
        return steps

    def addresses(self) -> Iterator[tuple[str, FieldRule]]:
        """Yield the address of each rule, such as `core.validateContainerPorts/protocol/required`.

        A check that comes again has a number.
        """
        seen: dict[str, int] = {}
        for where, rule in self._fields():
            for called in [rule.need] * (rule.need in {"required", "present"}) + [rule.called]:
                address = f"{self.source}/{where}/{called}" if where else f"{self.source}/{called}"
                seen[address] = count = seen.get(address, 0) + 1
                if called:
                    yield (f"{address}-{count}" if count > 1 else address), rule

    def _fields(self) -> Iterator[tuple[str, FieldRule]]:
        """Yield the rules with the paths of their fields."""
        for rule in self.rules:
            if isinstance(rule.check, Ruleset) and not rule.check.function:
                for where, inner in rule.check._fields():
                    yield f"{rule.name}.{where}", inner
            else:
                yield rule.name or rule.shown, rule


class RuleTables:
    """The tables beside a module, whose globals are `scope`: they name functions and tables.

    What a module imports only for its tables is `imported`, so that linters see that it is used.
    """

    def __init__(self, scope: Mapping[str, Any], *imported: Any) -> None:  # noqa: ARG002
        self._scope = scope
        self.module: str = scope["__name__"]
        self._tables: dict[str, Ruleset] = {}

    @cached_property
    def group(self) -> tuple[str, str]:
        """The group that addresses begin with, and upstream's package."""
        name, _, package = self._lines[""][0].removeprefix("group ").partition(": ")
        return name, package

    @cached_property
    def _lines(self) -> Mapping[str, list[str]]:
        lines: list[str] = []
        found = {"": lines}
        here = Path(self._scope["__file__"]).with_suffix(".rules")
        for line in here.read_text(encoding="utf-8").splitlines():
            if line.startswith("["):
                found[line.strip("[]")] = lines = []
            elif line.startswith(" "):
                lines[-1] += f" {line.strip()}"
            elif line and not line.startswith("#"):
                lines.append(line)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(name for name in self._lines if name)

    def __getitem__(self, name: str) -> Ruleset:
        if name not in self._tables:
            self._tables[name] = Ruleset(name, lambda: self._read(name), self)
        return self._tables[name]

    def _read(self, name: str) -> list[FieldRule]:
        try:
            return [rule for line in self._lines[name] for rule in self._rules(line)]
        except (KeyError, SyntaxError, ValueError) as error:
            raise RuleError(f"{self.module}: {name}: {error}") from error

    def _rules(self, line: str) -> list[FieldRule]:
        head, _, why = line.partition(": ")
        path, _, text = head.partition(" ")
        clauses = [clause.strip() for clause in CLAUSES.split(text)]
        name, _, deeper = path.partition(".") if path != "." else ("", "", "")
        if deeper and "immutable" not in clauses:
            below = Ruleset("", lambda: self._rules(f"{deeper} {line[len(path) :]}"))
            return [FieldRule(name, name, "", {}, "", "", below, True, (), "")]  # noqa: FBT003
        options, checks = {"as": path if path != "." else ""}, []
        for clause in clauses:
            word, _, rest = clause.partition(" ")
            if clause in NEEDS or word == "each":
                options |= {"need": word, "unique": rest.removeprefix("by ")}
            elif word in OPTIONS:
                options[word] = rest
            elif clause:
                checks.append(clause)
        need, shown = options.get("need", ""), options["as"]
        made = [self._check(clause, path, why, options) for clause in checks]
        if need == "each":
            each = _each([check for check, *_ in made], options["unique"])
            made = [(each, "-".join(["each", *(called for _, called, *_ in made)]), False, ())]
        absent = ast.literal_eval(options["or"]) if "or" in options else None
        told = why if not any(map(TELLING.match, checks)) else ""
        rules, given = [], options.get("given", "")
        nothing: list[tuple[Any, str, bool, tuple[str, ...]]] = [(None, "", False, ())]
        for check, called, of_struct, known in made or nothing:
            more = check is not None and (need == "each" or _takes_more(check))
            of_field = "" if of_struct or given else name
            rules.append(
                FieldRule(of_field, shown, need, absent, told, given, check, more, known, called)
            )
            need = {"required": "filled", "present": ""}.get(need, need)
        return rules

    def _check(
        self, clause: str, name: str, why: str, options: Mapping[str, str]
    ) -> tuple[Check, str, bool, tuple[str, ...]]:
        """Return a check, what it is called, whether it is one of a struct, and what it knows."""
        called, shown = clause.replace(" ", "-"), options["as"]
        if clause.startswith("one of "):
            known = tuple(clause.removeprefix("one of ").replace('""', "").split(" "))
            return _one_of(known), called, False, known
        if numbers := NUMBERS.fullmatch(clause):
            return _numbers(clause, numbers, why), called, False, ()
        if clause == "forbidden":
            return lambda _, path: [fields.forbidden(path, why)], called, False, ()
        showing = options.get("showing")
        if clause == "immutable":
            absent = ast.literal_eval(options.get("or", "None"))
            show = self._scope[showing] if showing else lambda it: absent if it is None else it
            return _immutable(name, shown, why or IMMUTABLE, show), called, True, ()
        if condition := CONDITION.fullmatch(clause):
            text = showing or (f"it.get({name!r})" if name != "." else "it")
            holds, value = self._expression(condition[2]), self._expression(text)
            return (
                _condition(condition[1], shown, holds, why, value),
                f"{condition[1]}-if",
                True,
                (),
            )
        if clause.startswith("holds "):
            holds = self._expression(clause.removeprefix("holds "))
            invalid = fields.invalid_value
            return (
                lambda it, path: [] if holds(it) else [invalid(path, it, why)],
                "holds",
                False,
                (),
            )
        return self._named(clause), clause.strip("_").replace("_", "-"), False, ()

    def _named(self, word: str) -> Check:
        """Return a table or a function by its name; of texts, what returns its problems."""
        if word in self._lines:
            return self[word]
        for name in (word, f"{word}_problems", f"{word}_errors"):
            for scope in (self._scope, globals(), vars(names)):
                check = scope.get(name)
                if isinstance(check, Ruleset) or (check and check.__code__.co_argcount > 1):
                    return check
                if callable(check):
                    return _text(check)
        raise KeyError(word)

    def _expression(self, text: str) -> Callable[[Any], Any]:
        """Return a function of a struct, or of a value named `it`.

        The text is one of our own files, so it may be evaluated.
        """
        body = _Names(self._scope).visit(ast.parse(text, mode="eval").body)
        it = ast.arguments([], [ast.arg("it")], None, [], [], None, [])
        made = ast.fix_missing_locations(ast.Expression(ast.Lambda(it, body)))
        code = compile(made, "rules", "eval")
        return eval(code, {**BUILTINS, **MODULES, **self._scope})  # type: ignore[no-any-return]  # noqa: S307


class _Names(ast.NodeTransformer):
    """Makes names fields of `it`, unless they are called, constants, or modules of a method."""

    def __init__(self, scope: Mapping[str, Any]) -> None:
        self._kept = {"it"} | {name for name in scope if name.isupper()}

    def visit_Name(self, node: ast.Name) -> ast.AST:
        """Return what is in a field."""
        if node.id in self._kept or isinstance(node.ctx, ast.Store):
            self._kept.add(node.id)
            return node
        return ast.parse(f"it.get({node.id!r})", mode="eval").body

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:
        """Return what is in a field of a field."""
        struct = ast.BoolOp(ast.Or(), [self.visit(node.value), ast.Dict([], [])])
        return ast.Call(ast.Attribute(struct, "get", ast.Load()), [ast.Constant(node.attr)], [])

    def visit_Call(self, node: ast.Call) -> ast.AST:
        """Leave a function or a method as it is; `quantity.parse` is a function of a module."""
        node.args = [self.visit(each) for each in node.args]
        if isinstance(node.func, ast.Attribute) and not (
            isinstance(node.func.value, ast.Name) and node.func.value.id in MODULES
        ):
            node.func.value = self.visit(node.func.value)
        return node

    def visit_GeneratorExp(self, node: ast.GeneratorExp) -> ast.AST:
        """Look at what is bound before what uses it."""
        node.generators = [self.visit(each) for each in node.generators]
        node.elt = self.visit(node.elt)
        return node


def _each(checks: Sequence[Check], unique: str) -> Check:
    """Return the check of a list by the checks of its items."""
    steps = [(check, _takes_more(check)) for check in checks]

    def each(values: Sequence[Any], path: str, more: Any) -> list[FieldError]:
        errors: list[FieldError] = []
        seen = set()
        for index, item in enumerate(values):
            at = f"{path}[{index}]"
            for check, takes_more in steps:
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


def _one_of(known: tuple[str, ...]) -> Check:
    def one_of(value: Any, path: str) -> list[FieldError]:
        return [] if value in known else [fields.not_supported(path, value, known, ordered=True)]

    return one_of


def _numbers(clause: str, found: re.Match[str], why: str) -> Check:
    low, high = found[1], int(found[2])
    if found[3]:
        too_long = fields.too_long
        return lambda text, path: [too_long(path, high)] if len(text.encode()) > high else []
    least, most = (float(low) if low else -math.inf), float(high)
    usual = f"must be between {low} and {high}, inclusive"
    if clause.startswith("at least"):
        least, most, usual = high, math.inf, f"must be greater than or equal to {high}"
    elif clause.startswith("at most"):
        usual = f"must be less than or equal to {high}"

    def within(value: int, path: str) -> list[FieldError]:
        if least <= value <= most:
            return []
        return [fields.invalid_value(path, value, why or usual)]

    return within


def _condition(
    kind: str, name: str, holds: Callable[[Any], Any], why: str, value: Callable[[Any], Any]
) -> Check:
    def condition(struct: JsonObject, path: str) -> list[FieldError]:
        if not holds(struct):
            return []
        at = f"{path}.{name}" if path and name else path or name
        if kind == "invalid":
            return [fields.invalid_value(at, value(struct), why)]
        return [fields.required(at, why) if kind == "required" else fields.forbidden(at, why)]

    return condition


def _immutable(name: str, shown: str, why: str, show: Callable[[Any], Any]) -> Check:
    keys = name.split(".")

    def immutable(new: JsonObject, path: str, old: JsonObject) -> list[FieldError]:
        value = _at(new, keys)
        if value == _at(old, keys):
            return []
        return [fields.invalid_value(f"{path}{shown}", show(value), why)]

    return immutable


def _at(value: Any, keys: Sequence[str]) -> Any:
    for key in keys:
        value = (value or {}).get(key)
    return value


def _text(problems: Callable[[Any], Sequence[str]]) -> Check:
    return lambda value, path: fields.each(path, value, problems(value))


def label(value: str, path: str) -> list[FieldError]:
    """A text is a DNS label."""
    return [] if names.is_label(value) else fields.each(path, value, names.label_problems(value))


def qualified(value: str, path: str) -> list[FieldError]:
    """A text is a qualified name."""
    if names.is_qualified(value):
        return []
    return fields.each(path, value, names.qualified_problems(value))


def subdomain(value: str, path: str) -> list[FieldError]:
    """A text is a DNS subdomain."""
    return fields.each(path, value, names.subdomain_problems(value))
