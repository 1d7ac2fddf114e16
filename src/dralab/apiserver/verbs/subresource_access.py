"""Permissions of the user of a write for subresources that exist only in roles."""

from collections.abc import Mapping
from dataclasses import dataclass

from dralab.api.kinds import Kind
from dralab.api.status import ApiError
from dralab.apiserver.access.authorization.attributes import Attributes
from dralab.apiserver.verbs.state.context import Scope


@dataclass(frozen=True, slots=True)
class SubresourceAccess:
    """Asks the authorizer for the user of a write to an object of a namespace."""

    scope: Scope
    kind: Kind
    namespace: str

    @property
    def verb(self) -> str:
        """The verb of the request."""
        return "patch" if self.scope.options.kind == "PatchOptions" else "update"

    @property
    def user_name(self) -> str:
        """The user's name."""
        return self.scope.user.name

    @property
    def user_extra(self) -> Mapping[str, tuple[str, ...]]:
        """What else is known of the user."""
        return self.scope.user.extra

    def refusal(self, verb: str, subresource: str, name: str) -> str:
        """Return why the user may not use a subresource; empty if the user may.

        Without a name it is asked for all objects of all namespaces.
        """
        wanted = Attributes(
            user=self.scope.user,
            verb=verb,
            group=self.kind.group,
            version=self.kind.version,
            resource=self.kind.plural,
            subresource=subresource,
            namespace=self.namespace if name else "",
            name=name,
        )
        try:
            self.scope.check_access(wanted)
        except ApiError as error:
            return error.message
        return ""
