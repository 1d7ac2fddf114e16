"""What a server does with the objects of one kind, beyond what it does with all of them.

Upstream calls this a registry strategy. The base does nothing and forbids nothing; kinds that
code reasons about override what they need. All methods are pure: no clock, no store.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from dralab.api.fields import FieldError
from dralab.api.rules import Ruleset
from dralab.api.schemas import Schema
from dralab.values import names
from dralab.values.json_types import JsonDict
from dralab.values.records import dataclass


@dataclass(frozen=True, slots=True)
class ScalePaths:
    """Where an object keeps what its Scale shows; `selector` is empty if it has none."""

    spec: tuple[str, ...] = ("spec", "replicas")
    status: tuple[str, ...] = ("status", "replicas")
    selector: tuple[str, ...] = ("spec", "selector")


class StatusWriter(Protocol):
    """Who writes a status: the verb of the request, and the user's name and `extra`."""

    @property
    def verb(self) -> str:
        """`update` or `patch`."""
        ...

    @property
    def user_name(self) -> str:
        """The user's name."""
        ...

    @property
    def user_extra(self) -> Mapping[str, tuple[str, ...]]:
        """What else is known of the user."""
        ...

    def refusal(self, verb: str, subresource: str, name: str) -> str:
        """Return the refusal of a subresource to the user; without a name, of all of them.

        Empty if the user may.
        """
        ...


class Strategy:
    """The rules of one kind. Objects are in the form of the kind's hub version.

    `unconditional` tells whether a PUT without a resourceVersion is taken; `creates_on_update`
    whether a PUT makes a missing object; `keeps_status` whether a new object may bring its status
    along; `orphans` whether a deletion that says nothing else leaves dependents; `prefixed`
    whether `generateName` must be good itself. `status_keeps` names the parts of metadata that a
    write to `/status` may change. `counted` lists the parts of the metadata that
    count as wanted. Where `counts` is false, the generation stays as it is.

    `rules` are those of a new object, `change_rules` those of a changed one, `status_rules` those
    of a changed status; the last two also get the object as it was.
    """

    rules = Ruleset("")
    change_rules: Ruleset | None = None
    status_rules = Ruleset("")

    unconditional: bool = True
    prefixed: bool = True
    creates_on_update: bool = False
    keeps_status: bool = False
    orphans: bool = False
    status_keeps: frozenset[str] = frozenset(
        {"labels", "annotations", "finalizers", "ownerReferences"}
    )
    counted: tuple[str, ...] = ()
    counts: bool = True

    def decode(self, value: JsonDict, version: str) -> tuple[JsonDict, list[str]] | None:  # noqa: ARG002 - for others
        """Return an object in its typed form, and the paths of fields that are not known.

        None leaves it to the built-in definitions. `value` may be changed.
        """
        return None

    def mend(self, value: JsonDict) -> list[str]:  # noqa: ARG002 - for others
        """Rewrite, before decoding, fields that are read as others; return warnings."""
        return []

    def effort(self, size: int, version: str) -> int:  # noqa: ARG002 - for others
        """Return how many bytes of JSON take as long to read as `size` bytes take to check."""
        return size

    def schema(self, version: str) -> Schema | None:  # noqa: ARG002 - for others
        """Return the schema of a kind that is not a built-in one."""
        return None

    def scale_paths(self, version: str) -> ScalePaths:  # noqa: ARG002 - for others
        """Return where the number of replicas is, in the form of a version."""
        return ScalePaths()

    def default(self, value: JsonDict) -> None:
        """Fill in what the client left out; changes `value`."""

    def updated(self, value: JsonDict) -> JsonDict:
        """Return a stored object as today's schema has it, which may be the same one."""
        return value

    def prepare_create(self, value: JsonDict, now: str) -> None:
        """Drop what a client may not set on a new object, and set what it always has.

        Its metadata is complete; `now` is the time as objects carry it.
        """

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """Carry over what a client may not change; `old` may not be changed."""

    def prepare_status(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """The same for a write to `/status`."""

    def place_problems(
        self,
        new: JsonDict,  # noqa: ARG002 - for others
        old: JsonDict | None,  # noqa: ARG002 - for others
        labels: Callable[[], Mapping[str, str]],  # noqa: ARG002 - for others
    ) -> list[FieldError]:
        """Return the errors of an object in its namespace, whose labels `labels` returns.

        It is asked of new objects, with no `old`, and of writes to the status.
        """
        return []

    def status_access_problems(
        self,
        new: JsonDict,  # noqa: ARG002 - for others
        old: JsonDict,  # noqa: ARG002 - for others
        writer: StatusWriter,  # noqa: ARG002 - for others
    ) -> list[FieldError]:
        """Return what a user who may write a status may not change in it."""
        return []

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a new object, its metadata apart."""
        return self.rules(value, "")

    def judged(self, value: JsonDict) -> tuple[list[FieldError], list[str]]:
        """Return the errors of a new object, or its warnings if there are none."""
        errors = self.validate(value)
        return errors, [] if errors else self.warnings(value)

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a changed object, its metadata apart."""
        return self.validate(new) if self.change_rules is None else self.change_rules(new, "", old)

    def prepare_part(self, subresource: str, new: JsonDict, old: JsonDict, now: str) -> None:
        """The same for a write to another subresource, such as `approval`."""

    def validate_part(self, subresource: str, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002 - for others
        """Return the errors of a write to another subresource, such as `approval`."""
        return []

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a changed status."""
        return self.status_rules(new, "", old)

    def creation_warnings(self, value: JsonDict) -> list[str]:  # noqa: ARG002 - for others
        """Return the warnings about a new object, valid or not."""
        return []

    def creation_refusal(self) -> str:
        """Return the reason to refuse all creations of the kind now; empty if none."""
        return ""

    def deletion_finalizers(self) -> list[str]:
        """Return the finalizers that an object gets when its deletion begins."""
        return []

    def marked(self, value: JsonDict, now: str) -> None:
        """Note in an object that its deletion has begun; nested parts are shared: copy them."""

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name of this kind."""
        return names.subdomain_problems(name)

    def in_version(
        self,
        version: str,  # noqa: ARG002 - for others
        kind: str,  # noqa: ARG002 - for others
        errors: Sequence[FieldError],
    ) -> list[FieldError]:
        """Return errors with the paths of the version that the client wrote."""
        return list(errors)

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:  # noqa: ARG002 - for others
        """Return the warnings about a valid object that replaces `old`."""
        return []
