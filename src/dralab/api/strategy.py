"""What a server makes of the objects of one kind, beyond what it does with all of them.

Upstream calls this a registry strategy. The base does nothing and forbids nothing; kinds that
code reasons about override what they need. All methods are pure: no clock, no store.
"""

from typing import Any

from dralab.api.fields import FieldError
from dralab.values import names

Object = dict[str, Any]


class Strategy:
    """The rules of one kind. Objects are in the form of the kind's hub version.

    `unconditional` tells whether a PUT without a resourceVersion is taken; `creates_on_update`
    whether a PUT makes a missing object; `keeps_status` whether a new object may bring its
    status along. `status_keeps` names the parts of metadata that a write
    to `/status` may change. `counted` lists the parts of the metadata that count as wanted.
    """

    unconditional: bool = True
    creates_on_update: bool = False
    keeps_status: bool = False
    status_keeps: frozenset[str] = frozenset({"labels", "annotations", "finalizers"})
    counted: tuple[str, ...] = ()

    def default(self, value: Object) -> None:
        """Fill in what the client left out; changes `value`."""

    def prepare_create(self, value: Object) -> None:
        """Drop what a client may not set on a new object, and set what it always has."""

    def prepare_update(self, new: Object, old: Object) -> None:
        """Carry over what a client may not change."""

    def validate(self, value: Object) -> list[FieldError]:  # noqa: ARG002 - for others
        """Return what is wrong with a new object, its metadata apart."""
        return []

    def validate_update(self, new: Object, old: Object) -> list[FieldError]:  # noqa: ARG002 - for others
        """Return what is wrong with a changed object, its metadata apart."""
        return self.validate(new)

    def validate_status(self, new: Object, old: Object) -> list[FieldError]:  # noqa: ARG002 - for others
        """Return what is wrong with a changed status."""
        return []

    def marked(self, value: Object, now: str) -> None:
        """Note in an object that its deletion has begun; nested parts are shared: copy them."""

    def name_problems(self, name: str) -> list[str]:
        """Return why a name is none for this kind."""
        return names.subdomain_problems(name)

    def warnings(self, value: Object) -> list[str]:  # noqa: ARG002 - for others
        """Return what a client should know about an object that is good."""
        return []
