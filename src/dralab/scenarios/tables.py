"""One table of fields per object: from it come the reader, its errors and the JSON schema.

>>> NODE = Table({"name": label("Of the node.", required=True), "gpus": whole(default=0)})
>>> NODE.schema()["required"], sorted(NODE.schema()["properties"])
(['name'], ['gpus', 'name'])
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from dralab.api.releases import MIXED, ReleaseError, parse
from dralab.kernel.durations import UNITS
from dralab.scenarios.errors import InputError
from dralab.scenarios.fields import Fields
from dralab.values import json_schema, near_names
from dralab.values.json_schema import FLAG, TEXT, JsonSchema, any_of, mapping, one_of_fields

_UNIT: Final = "|".join(sorted(UNITS, key=lambda unit: (-len(unit), unit)))

# `Fields.text`: numbers are texts, too.
LABEL: Final[JsonSchema] = {"type": ["string", "number"]}
# `Fields.duration`.
DURATION: Final[JsonSchema] = any_of(
    {"type": "number", "minimum": 0},
    {"type": "string", "pattern": rf"^([0-9]+(\.[0-9]+)?({_UNIT}))+$"},
)
# `Fields.quantity`: `values.quantity` has the grammar; negative ones are refused.
QUANTITY: Final[JsonSchema] = any_of(
    {"type": "number", "minimum": 0},
    {
        "type": "string",
        "pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    },
)
HOW_LONG: Final[JsonSchema] = {"$ref": "#/$defs/duration"}
AMOUNT: Final[JsonSchema] = {"$ref": "#/$defs/quantity"}
Check = Callable[[Any], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class InputField:
    """How one field is read, and what its schema is.

    It has `default` where it is not given, unless it is `required`, or `always` read. It means
    something, and is known, only where the field (or one of those) that it `needs` is given.
    """

    schema: JsonSchema
    read: Callable[[Fields, str], Any]
    default: Any = None
    required: bool = False
    always: bool = False
    needs: str | Sequence[str] = ()

    def of(self, given: Fields, key: str) -> Any:
        """Return the value of a field. InputError."""
        needed = [self.needs] if isinstance(self.needs, str) else self.needs
        if needed and all(given.value.get(name) is None for name in needed):
            return self.default
        if self.required or self.always or given.has(key):
            return self.read(given, key)
        return self.default

    def described(self, about: str) -> "InputField":
        """Return the rule with a description, which editors show."""
        return replace(self, schema=json_schema.about(about, self.schema))

    def checked(self, *checks: Check) -> "InputField":
        """Return the rule with checks of the value: each returns the problem, or nothing."""

        def read(given: Fields, key: str) -> Any:
            value = self.read(given, key)
            for problem in filter(None, (check(value) for check in checks)):
                raise given.error(key, problem)
            return value

        return replace(self, read=read)


class Given:
    """The values of one object's fields."""

    def __init__(self, given: Fields, values: dict[str, Any], form: str = "") -> None:
        self.given = given
        self.values = values
        self.form = form  # the one field that was given, of those of which one must be

    def __getattr__(self, name: str) -> Any:
        try:
            return self.values[name]
        except KeyError:
            raise AttributeError(name) from None

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def error(self, key: str, problem: str) -> InputError:
        """Return an error about a field; without a key, about the object."""
        return (
            self.given.error(key, problem)
            if key
            else self.given.place.error(self.given.where, problem)
        )


class Table:
    """The fields of an object. Exactly one of `one_of` is given, each a field or several."""

    def __init__(
        self,
        fields: Mapping[str, InputField],
        *,
        one_of: Sequence[str | tuple[str, ...]] = (),
        told: str = "must have exactly one of {}",
        rules: JsonSchema = {},  # noqa: B006 - only read
    ) -> None:
        self.fields = fields
        self.rules = ({"oneOf": one_of_fields(*one_of)} if one_of else {}) | rules
        self._forms = [each if isinstance(each, str) else each[0] for each in one_of]
        self._told = told

    def read(self, given: Fields) -> Given:
        """Return the values of all fields. InputError: one is wrong, unknown or missing."""
        forms = [name for name in self._forms if given.has(name)]
        if self._forms and len(forms) != 1:
            raise given.place.error(given.where, self._told.format(", ".join(self._forms)))
        values = {key: rule.of(given, key) for key, rule in self.fields.items()}
        given.done()
        return Given(given, values, forms[0] if forms else "")

    def schema(self) -> JsonSchema:
        """Return the JSON schema of the object."""
        needs = {
            key: [rule.needs] for key, rule in self.fields.items() if isinstance(rule.needs, str)
        }
        return mapping(
            {key: rule.schema for key, rule in self.fields.items()},
            [key for key, rule in self.fields.items() if rule.required],
            **self.rules,
            **({"dependentRequired": needs} if needs else {}),
        )


# --- words for fields -----------------------------------------------------------------------------


def field(
    schema: JsonSchema,
    read: Callable[[Fields, str], Any] = Fields.raw,
    about: str = "",
    **how: Any,
) -> InputField:
    """Return a field with a reader of its own."""
    return InputField(
        schema=json_schema.about(about, schema) if about else schema, read=read, **how
    )


def label(about: str = "", *, schema: JsonSchema = LABEL, **how: Any) -> InputField:
    """Return a text, or a number that stands for one."""
    return field(schema, Fields.text, about, **how)


def release(about: str = "") -> InputField:
    """Return a release of Kubernetes; `MIXED` where none is given."""

    def read(given: Fields, key: str) -> str:
        try:
            return parse(given.text(key))
        except ReleaseError as error:
            raise given.error(key, str(error)) from error

    return field(TEXT, read, f'The release of Kubernetes, such as "1.34".{about}', default=MIXED)


def choice(values: Collection[str], about: str = "", **how: Any) -> InputField:
    """Return one of some texts."""
    schema = json_schema.choice(values)
    return field(schema, lambda given, key: given.choice(key, values), about, **how)


def number(about: str = "", least: float = 0, most: float | None = None, **how: Any) -> InputField:
    """Return a number; a check may limit it."""
    schema = json_schema.number(least, most)
    return field(schema, lambda given, key: given.number(key, least=least), about, **how)


def probability(about: str = "", **how: Any) -> InputField:
    """Return a number from 0 to 1."""
    rule = number(about, 0, 1, **how)
    return rule.checked(lambda chance: "is a probability: from 0 to 1" if chance > 1 else "")


def whole(about: str = "", least: int = 0, most: int | None = None, **how: Any) -> InputField:
    """Return a whole number."""
    schema = json_schema.whole(least, most)
    return field(schema, lambda given, key: given.whole(key, least=least, most=most), about, **how)


def count(most: int) -> InputField:
    """Return how many an entry stands for."""
    return whole("So many, numbered from 0; default: 1, without a number.", 1, most, default=1)


def flag(about: str = "", **how: Any) -> InputField:
    """Return true or false."""
    return field(FLAG, Fields.flag, about, **how)


def duration(about: str = "", **how: Any) -> InputField:
    """Return a duration, in nanoseconds."""
    return field(HOW_LONG, Fields.duration, about, **how)


def quantity(
    about: str = "", scale: int = 1, *, schema: JsonSchema = AMOUNT, **how: Any
) -> InputField:
    """Return an amount of a resource, times `scale`."""
    return field(schema, lambda given, key: given.quantity(key, scale=scale), about, **how)


def labels(about: str = "", **how: Any) -> InputField:
    """Return texts by names, as a set of `name=text`."""
    schema = {"type": "object", "additionalProperties": LABEL}
    return field(schema, Fields.labels, about, **({"default": frozenset()} | how))


def file(about: str = "", **how: Any) -> InputField:
    """Return a file, in the folder of this one."""
    return field(json_schema.FILE, Fields.file, about, **how)


def texts(
    about: str = "", *, item: JsonSchema = TEXT, least: int = 0, check: Check = lambda _: "",
    **how: Any,
) -> InputField:  # fmt: skip
    """Return a list of texts, each of which passes a check."""
    rule = field(
        json_schema.listing(item, least),
        lambda given, key: tuple(given.texts(key)),
        about,
        **({"default": ()} | how),
    )
    return rule.checked(lambda found: next(filter(None, map(check, found)), ""))


def row(table: Table, about: str = "", **how: Any) -> InputField:
    """Return an object; an empty one if it is missing."""
    read = lambda given, key: table.read(given.mapping(key))  # noqa: E731 - as the words above
    return field(table.schema(), read, about, **({"always": True} | how))


def rows(table: Table, about: str = "", least: int = 0, **how: Any) -> InputField:
    """Return a list of objects."""
    return field(
        json_schema.listing(table.schema(), least),
        lambda given, key: [table.read(each) for each in given.mappings(key)],
        about,
        **({"always": True} | how),
    )


def by_name(table: Table, about: str = "", **how: Any) -> InputField:
    """Return objects by the names that the user gives them, sorted."""

    def read(given: Fields, key: str) -> dict[str, Given]:
        found = given.mapping(key)
        return {name: table.read(found.mapping(name)) for name in sorted(found.value)}

    schema = {"type": "object", "additionalProperties": table.schema()}
    return field(schema, read, about, **({"always": True} | how))


def either(*rules: InputField, about: str = "", **how: Any) -> InputField:
    """Return the value by one rule for lists and another for objects."""
    kinds = {_kind(rule): rule for rule in reversed(rules)}

    def read(given: Fields, key: str) -> Any:
        value = given.raw(key)
        kind = "array" if isinstance(value, list) else "object" if isinstance(value, dict) else ""
        return (kinds.get(kind) or kinds.get("") or rules[0]).read(given, key)

    return field(any_of(*(rule.schema for rule in rules)), read, about, **how)


def _kind(rule: InputField) -> str:
    kind = rule.schema.get("type")
    return kind if kind in ("array", "object") else ""


def not_one_of(known: Collection[str]) -> Check:
    """Return a check that a text is one of some.

    >>> not_one_of(["a", "b"])("c")
    "'c' is not one of a, b"
    """
    return lambda text: "" if text in known else near_names.not_one_of(text, known)
