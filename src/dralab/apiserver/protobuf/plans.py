"""How each message is decoded: its fields, compiled once from the table."""

from typing import Final

from dralab.api.messages import (
    CRD,
    INT_OR_STRING,
    LISTS,
    META,
    QUANTITY,
    RAW_EXTENSION,
    MessageField,
    Messages,
)

AGGREGATOR: Final = "k8s.io.kube_aggregator.pkg.apis.apiregistration."
PACKAGES: Final = {
    "": "k8s.io.api.core.",
    "apiextensions.k8s.io": CRD.removesuffix("v1."),
    "apiregistration.k8s.io": AGGREGATOR,
    "internal.apiserver.k8s.io": "k8s.io.api.apiserverinternal.",
}
SCALARS: Final = frozenset({"string", "bytes", "bool", "int32", "int64", "uint32", "double"})


class MessagePlan:
    """How one message is decoded; `fields` by number, made when first asked for.

    A field is (name, scalar or nothing, plan or None, value's plan or scalar of a map, repeated,
    kept when empty, inline).
    """

    __slots__ = ("_fields", "_messages", "name", "special")

    def __init__(self, name: str, messages: Messages) -> None:
        self.name = name
        self.special = SPECIAL.get(name, "list" if name in LISTS else "")
        self._messages = messages
        self._fields: dict[int, FieldPlan] | None = None

    @property
    def fields(self) -> "dict[int, FieldPlan]":
        """The fields, by number."""
        if self._fields is None:
            self._fields = {
                number: _plan_of(field)
                for number, field in self._messages.fields(self.name).items()
            }
        return self._fields


class FieldPlan:
    """How one field is decoded."""

    __slots__ = (
        "inline",
        "keeps",
        "map_value",
        "name",
        "plain_text",
        "plan",
        "repeated",
        "scalar",
    )

    def __init__(
        self,
        name: str,
        *,
        scalar: str = "",
        plan: MessagePlan | None = None,
        map_value: "FieldPlan | None" = None,
        repeated: bool = False,
        keeps: bool = False,
        inline: bool = False,
    ) -> None:
        self.name = name
        self.scalar = scalar
        self.plan = plan
        self.map_value = map_value
        self.repeated = repeated
        self.keeps = keeps
        self.inline = inline
        self.plain_text = scalar == "string"


SPECIAL: Final = {
    META + "Time": "time",
    META + "MicroTime": "micro-time",
    META + "Duration": "duration",
    META + "FieldsV1": "json",
    META + "Verbs": "list",
    QUANTITY: "quantity",
    INT_OR_STRING: "int-or-string",
    RAW_EXTENSION: "json",
    CRD + "JSON": "json",
    CRD + "JSONSchemaPropsOrBool": "schema-or-bool",
    CRD + "JSONSchemaPropsOrArray": "schema-or-list",
    CRD + "JSONSchemaPropsOrStringArray": "schema-or-list",
}
_PLANS: Final[dict[str, MessagePlan]] = {}


def plan_for(name: str) -> MessagePlan:
    """Return how a message is decoded; KeyError if there is no such message."""
    found = _PLANS.get(name)
    if found is None:
        messages = Messages.standard()
        if name not in messages:
            raise KeyError(name)
        found = _PLANS[name] = MessagePlan(name, messages)
    return found


def plan_of_object(api_version: str, kind: str) -> MessagePlan | None:
    """Return how an object is decoded; None if its type is not known."""
    group, _, version = api_version.rpartition("/")
    package = PACKAGES.get(group, f"k8s.io.api.{group.partition('.')[0]}.")
    messages = Messages.standard()
    # DeleteOptions and the like come with the version of the resource they are about.
    for name in (f"{package}{version}.{kind}", META + kind):
        if name in messages:
            return plan_for(name)
    return None


def _plan_of(field: MessageField) -> FieldPlan:
    keeps = field.pointer or not field.omitempty
    if field.map:
        value = field.type.partition(",")[2]
        return FieldPlan(field.name, map_value=_plain("", value), keeps=keeps)
    found = _plain(field.name, field.type)
    found.repeated = field.list
    found.plain_text = found.plain_text and not field.list
    found.keeps = keeps
    found.inline = field.inline
    return found


def _plain(name: str, type_: str) -> FieldPlan:
    if type_ in SCALARS:
        return FieldPlan(name, scalar=type_, keeps=True)
    return FieldPlan(name, plan=plan_for(type_), keeps=True)
