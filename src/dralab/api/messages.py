"""The fields of Kubernetes' Go types: protobuf numbers, and the meaning of absent values.

Facts are data (`data/messages.json.gz`, written by `tools/generate_messages.py`). A Go struct
without a pointer is always there, and so is a field that Go does not leave out when empty:
that shows in what protobuf bodies mean and in who owns a field. Decoding is left to the server.
"""

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final, NamedTuple

from dralab.api.releases import unpacked

META: Final = "k8s.io.apimachinery.pkg.apis.meta.v1."
CRD: Final = "k8s.io.apiextensions_apiserver.pkg.apis.apiextensions.v1."
QUANTITY: Final = "k8s.io.apimachinery.pkg.api.resource.Quantity"
INT_OR_STRING: Final = "k8s.io.apimachinery.pkg.util.intstr.IntOrString"
RAW_EXTENSION: Final = "k8s.io.apimachinery.pkg.runtime.RawExtension"

# Types whose JSON is not that of their struct: what stands for one that is not there.
ZEROS: Final[Mapping[str, Any]] = {
    META + "Time": None,
    META + "MicroTime": None,
    META + "Duration": "0s",
    META + "FieldsV1": None,
    META + "Verbs": None,
    QUANTITY: "0",
    INT_OR_STRING: 0,
    RAW_EXTENSION: None,
    CRD + "JSON": None,
    "string": "",
    "bool": False,
    "int32": 0,
    "int64": 0,
    "double": 0,
    "bytes": None,
}
# Named lists: Go leaves out an empty one where it is told to, as it does with any list.
LISTS: Final = frozenset(
    {
        META + "Verbs",
        "k8s.io.api.authentication.v1.ExtraValue",
        "k8s.io.api.authorization.v1.ExtraValue",
        "k8s.io.api.certificates.v1.ExtraValue",
    }
)


class MessageField(NamedTuple):
    """One field of a message.

    `name` is its JSON name, "-" where JSON does not show it; `type` a scalar's name, a message,
    or `key,value` of a map.
    """

    name: str
    type: str
    list: bool
    map: bool
    pointer: bool
    omitempty: bool
    omitzero: bool
    inline: bool


class Messages:
    """The messages of the standard kinds, read when they are first asked for."""

    def __init__(self, raw: Mapping[str, Mapping[str, tuple[str, str, str]]]) -> None:
        self._raw = raw
        self._fields: dict[str, dict[int, MessageField]] = {}
        self._zeros: dict[str, dict[str, Any]] = {}

    @classmethod
    @lru_cache(maxsize=1)
    def standard(cls) -> "Messages":
        """Return the messages of Kubernetes 1.36, and what 1.37 added."""
        return cls(unpacked("messages.json.gz")["messages"])

    def __contains__(self, name: str) -> bool:
        return name in self._raw

    def names(self) -> list[str]:
        """Return the names of all messages, sorted."""
        return sorted(self._raw)

    def fields(self, name: str) -> dict[int, MessageField]:
        """Return a message's fields by number; KeyError if there is no such message."""
        found = self._fields.get(name)
        if found is None:
            found = {
                int(number): MessageField(
                    json_name,
                    type_,
                    list="l" in flags,
                    map="m" in flags,
                    pointer="p" in flags,
                    omitempty="e" in flags,
                    omitzero="z" in flags,
                    inline="i" in flags,
                )
                for number, (json_name, type_, flags) in self._raw[name].items()
            }
            self._fields[name] = found
        return found

    def zeros(self, name: str) -> Mapping[str, Any]:
        """Return the fields that are always there, with what stands for an absent one.

        >>> Messages.standard().zeros("k8s.io.api.core.v1.EnvVar")
        {'name': ''}
        """
        found = self._zeros.get(name)
        if found is None:
            found = {}
            for field in self.fields(name).values() if name in self._raw else ():
                if field.inline:
                    found |= self.zeros(field.type)
                elif self._always(field):
                    found[field.name] = self._zero(field)
            self._zeros[name] = found
        return found

    def _always(self, field: MessageField) -> bool:
        if field.omitzero or field.name == "-":
            return False
        if field.pointer:
            return not field.omitempty
        struct = "." in field.type and not field.list and not field.map
        return not field.omitempty or (struct and field.type not in LISTS)

    def _zero(self, field: MessageField) -> Any:
        if field.list or field.map or field.pointer:
            return None
        return ZEROS.get(field.type, {})


def message_of(definition: str) -> str:
    """Return the message's name of a definition of the OpenAPI documents.

    >>> message_of("io.k8s.api.core.v1.Pod")
    'k8s.io.api.core.v1.Pod'
    """
    return "k8s.io." + definition.removeprefix("io.k8s.").replace("-", "_")
