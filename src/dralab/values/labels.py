"""Label selectors: the text form of queries, the mapping form of objects, and node selectors.

Grammar and meaning: k8s.io/apimachinery `labels` and k8s.io/component-helpers `nodeaffinity`.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.values import names
from dralab.values.go_text import aggregate
from dralab.values.records import dataclass
from dralab.values.remembering import remembered

TOKEN: Final = re.compile(r"\s*(?:(?P<op>==|!=|[=!,()<>])|(?P<word>[^\s=!,()<>]+))\s*")
SYMBOLS: Final = frozenset({"==", "!=", "=", "!", ",", "(", ")", "<", ">"})
INTEGER: Final = re.compile(r"[+-]?[0-9]+")
MAX_LENGTH: Final = 1 << 16


class SelectorError(ValueError):
    """A selector that cannot be read."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label.

    `operator` is one of In, NotIn, Exists, DoesNotExist, Gt, Lt.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet the condition."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value is not None and value in self.values
            case "NotIn":
                return value is None or value not in self.values
            case "Exists":
                return value is not None
            case "DoesNotExist":
                return value is None
            case "Gt" | "Lt":
                return self._compares(value)
            case _:
                raise SelectorError(f'"{self.operator}" is not a valid label selector operator')

    def _compares(self, value: str | None) -> bool:
        if value is None or len(self.values) != 1:
            return False
        try:
            mine, bound = int(value), int(self.values[0])
        except ValueError:
            return False
        return mine > bound if self.operator == "Gt" else mine < bound


@dataclass(frozen=True, slots=True)
class Selector:
    """Conditions that must all hold; without any it accepts everything."""

    requirements: tuple[Requirement, ...] = ()

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet every condition."""
        return all(requirement.accepts(labels) for requirement in self.requirements)


class LargeSelector(Selector):
    """A selector with many conditions or values, found by key instead of tried one by one.

    An object costs about as much as it has labels, whatever the selector; it takes longer to make.
    """

    __slots__ = ("_refused", "_required")
    _required: Sequence[tuple[Requirement, frozenset[str] | None]]
    _refused: Mapping[str, Sequence[frozenset[str] | None]]

    def __init__(self, requirements: tuple[Requirement, ...]) -> None:
        super().__init__(requirements)
        required: list[tuple[Requirement, frozenset[str] | None]] = []
        refused: dict[str, list[frozenset[str] | None]] = {}  # None: any value
        for each in requirements:
            values = frozenset(each.values)
            if each.operator in {"NotIn", "DoesNotExist"}:
                refused.setdefault(each.key, []).append(
                    values if each.operator == "NotIn" else None
                )
            else:
                required.append((each, values if each.operator == "In" else None))
        object.__setattr__(self, "_required", required)
        object.__setattr__(self, "_refused", refused)

    def accepts(self, labels: Mapping[str, str]) -> bool:
        """Return whether labels meet every condition."""
        for each, values in self._required:
            value = labels.get(each.key)
            if value is None or (
                value not in values if values is not None else not each.accepts(labels)
            ):
                return False
        for key, value in labels.items():
            for values in self._refused.get(key, ()):
                if values is None or value in values:
                    return False
        return True


EVERYTHING: Final = Selector()
FEW: Final = 8


@remembered(1024, longest=2048)
def parse(text: str) -> Selector:
    """Return the selector of a query such as `app=web,tier in (a,b),!old`.

    >>> parse("app in (web, api),!old").accepts({"app": "api"})
    True
    """
    if len(text) > MAX_LENGTH:
        raise SelectorError(f"the selector is longer than {MAX_LENGTH} characters")
    tokens = _tokens(text)
    if not tokens:
        return EVERYTHING
    found = tuple(_Parser(tokens).requirements())
    many = len(found) > FEW or any(len(each.values) > FEW for each in found)
    return LargeSelector(found) if many else Selector(found)


def from_mapping(selector: Mapping[str, Any] | None) -> Selector:
    """Return the selector of a metav1.LabelSelector mapping; None selects nothing: see caller."""
    if not selector:
        return EVERYTHING
    found = [
        Requirement(key, "In", (value,))
        for key, value in sorted((selector.get("matchLabels") or {}).items())
    ]
    found += [
        Requirement(item["key"], item["operator"], tuple(item.get("values") or ()))
        for item in selector.get("matchExpressions") or ()
    ]
    return Selector(tuple(found))


def text_of(selector: Mapping[str, Any] | None) -> str:
    """Return a metav1.LabelSelector as kubectl writes it; empty if it selects everything.

    >>> text_of(
    ...     {
    ...         "matchLabels": {"app": "web"},
    ...         "matchExpressions": [
    ...             {"key": "tier", "operator": "In", "values": ["a", "b"]},
    ...             {"key": "old", "operator": "DoesNotExist"},
    ...         ],
    ...     }
    ... )
    'app=web,tier in (a,b),!old'
    """
    return ",".join(map(_requirement_text, from_mapping(selector).requirements))


def _requirement_text(each: Requirement) -> str:
    values = ",".join(each.values)
    match each.operator:
        case "In":
            return f"{each.key}={values}" if len(each.values) == 1 else f"{each.key} in ({values})"
        case "NotIn":
            return f"{each.key} notin ({values})"
        case "Exists":
            return each.key
        case "DoesNotExist":
            return f"!{each.key}"
        case _:
            return f"{each.key} {each.operator} {values}"


def node_selector_accepts(
    selector: Mapping[str, Any], labels: Mapping[str, str], name: str
) -> bool:
    """Return whether a core/v1 NodeSelector accepts a node: any term, all of its conditions.

    A term without conditions accepts no node.
    """
    return any(
        node_term_accepts(term, labels, name) for term in selector.get("nodeSelectorTerms") or ()
    )


def node_term_accepts(term: Mapping[str, Any], labels: Mapping[str, str], name: str) -> bool:
    """Return whether one NodeSelectorTerm accepts a node; fields know `metadata.name` alone."""
    expressions: Iterable[Mapping[str, Any]] = term.get("matchExpressions") or ()
    fields: Iterable[Mapping[str, Any]] = term.get("matchFields") or ()
    if not expressions and not fields:
        return False
    return _all_accept(expressions, labels) and _all_accept(fields, {"metadata.name": name})


def nodes_named_by(term: Mapping[str, Any]) -> Sequence[str] | None:
    """Return the nodes that a NodeSelectorTerm names, of which it may accept fewer; None: no names.

    >>> item = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    >>> nodes_named_by({"matchFields": [item]})
    ['node-1']
    """
    found: Sequence[str] | None = None
    for item in term.get("matchFields") or ():
        if item.get("key") == "metadata.name" and item.get("operator") == "In":
            values: Sequence[str] = item.get("values") or ()
            found = values if found is None else [name for name in found if name in values]
    return found


def _all_accept(items: Iterable[Mapping[str, Any]], labels: Mapping[str, str]) -> bool:
    return all(
        Requirement(item["key"], item["operator"], tuple(item.get("values") or ())).accepts(labels)
        for item in items
    )


def _tokens(text: str) -> list[str]:
    tokens, position = [], 0
    while position < len(text):
        found = TOKEN.match(text, position)
        if found is None:
            if text[position:].strip():
                raise SelectorError(f"unable to parse requirement: {text[position:]!r}")
            break
        tokens.append(found["op"] or found["word"])
        position = found.end()
    return tokens


class _Parser:
    """Reads requirements from left to right."""

    def __init__(self, tokens: Sequence[str]) -> None:
        self.tokens = tokens
        self.at = 0

    def requirements(self) -> Iterable[Requirement]:
        if self.peek() != "!" and not self.is_word():
            raise SelectorError(
                f"found '{self.peek()}', expected: !, identifier, or 'end of string'"
            )
        while True:
            try:
                yield self.requirement()
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            if self.at == len(self.tokens):
                return
            if (found := self.take_token()) != ",":
                raise SelectorError(f"found '{found}', expected: ',' or 'end of string'")
            if self.peek() != "!" and not self.is_word():
                raise SelectorError(f"found '{self.peek()}', expected: identifier after ','")

    def peek(self) -> str:
        return self.tokens[self.at] if self.at < len(self.tokens) else ""

    def take_token(self) -> str:
        token = self.peek()
        self.at += 1
        return token

    def is_word(self) -> bool:
        token = self.peek()
        return bool(token) and token not in SYMBOLS

    def word(self, expected: str = "identifier") -> str:
        if not self.is_word():
            raise SelectorError(f"found '{self.peek()}', expected: {expected}")
        return self.take_token()

    def key(self) -> str:
        word = self.word()
        if problems := names.qualified_problems(word):
            # Upstream has no path for the key of a selector in text.
            raise SelectorError(f'<nil>: Invalid value: "{word}": {"; ".join(problems)}')
        return word

    def requirement(self) -> Requirement:
        if self.peek() == "!":
            self.take_token()
            return Requirement(self.key(), "DoesNotExist")
        key = self.key()
        match self.peek():
            case "" | ",":
                return Requirement(key, "Exists")
            case "=" | "==":
                self.take_token()
                return _checked(Requirement(key, "In", (self.value(),)))
            case "!=":
                self.take_token()
                return _checked(Requirement(key, "NotIn", (self.value(),)))
            case ">" | "<" as sign:
                self.take_token()
                return _checked(Requirement(key, "Gt" if sign == ">" else "Lt", (self.value(),)))
            case "in" | "notin" as operator:
                self.take_token()
                name = "In" if operator == "in" else "NotIn"
                return _checked(Requirement(key, name, self.values()))
            case other:
                raise SelectorError(f"found '{other}', expected: in, notin, =, ==, !=, gt, lt")

    def value(self) -> str:
        return "" if self.peek() in {"", ","} else self.word()

    def values(self) -> tuple[str, ...]:
        found = self.take_token()
        if found != "(":
            raise SelectorError(f"found '{found}' expected: '('")
        if self.peek() not in {",", ")"} and not self.is_word():
            raise SelectorError(f"found '{self.peek()}', expected: ',', ')' or identifier")
        values: list[str] = []
        while True:
            if self.peek() in {",", ")"}:
                values.append("")
            else:
                values.append(self.word("',', or identifier"))
            separator = self.take_token()
            if separator == ")":
                return tuple(sorted(set(values)))
            if separator != ",":
                raise SelectorError(f"found '{separator}', expected: ',' or ')'")


def _checked(requirement: Requirement) -> Requirement:
    """Return a requirement whose values may be values of labels. SelectorError."""
    wrong = []
    for index, value in enumerate(requirement.values):
        if requirement.operator in {"Gt", "Lt"} and not INTEGER.fullmatch(value):
            why = "for 'Gt', 'Lt' operators, the value must be an integer"
            wrong.append(f'values[{index}]: Invalid value: "{value}": {why}')
        if problems := names.label_value_problems(value):
            at = f"values[{index}][{requirement.key}]"
            wrong.append(f'{at}: Invalid value: "{value}": {"; ".join(problems)}')
    if wrong:
        raise SelectorError(aggregate(wrong))
    return requirement
