"""The rules of resource.k8s.io as strategies; `api.resource` decides.

They are imported with the first object that needs them, so that servers start faster.
"""

from collections.abc import Callable, Mapping, Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from dralab.api.fields import FieldError
from dralab.api.kinds import Kind
from dralab.api.strategy import StatusWriter, Strategy
from dralab.apiserver.made_once import made_once
from dralab.values.go_text import go_quoted
from dralab.values.json_types import JsonDict

if TYPE_CHECKING:
    from dralab.api.resource import rules

CLASSES = "resource.k8s.io/deviceclasses"
HUBS = {
    CLASSES: "DeviceClass",
    "resource.k8s.io/devicetaintrules": "DeviceTaintRule",
    "resource.k8s.io/resourceclaims": "ResourceClaim",
    "resource.k8s.io/resourceclaimtemplates": "ResourceClaimTemplate",
    "resource.k8s.io/resourcepoolstatusrequests": "ResourcePoolStatusRequest",
    "resource.k8s.io/resourceslices": "ResourceSlice",
}


class DeviceStrategy(Strategy):
    """One kind of resource.k8s.io under a set of feature gates."""

    # ResetObjectMetaForStatus: a write to the status changes no metadata.
    status_keeps = frozenset()

    def __init__(self, features: "rules.Features | None" = None) -> None:
        self._features = features

    def place_problems(
        self, new: JsonDict, old: JsonDict | None, labels: Callable[[], Mapping[str, str]]
    ) -> list[FieldError]:
        """Return the refusal of admin access to devices: the namespace needs a label."""
        from dralab.api.resource.admin_access import admin_access_problems

        return admin_access_problems(new, old, labels)

    def status_access_problems(
        self, new: JsonDict, old: JsonDict, writer: StatusWriter
    ) -> list[FieldError]:
        """Return what a user may not change of a claim's status: each part has a permission."""
        from dralab.api.resource import status_access

        if new.get("kind") != "ResourceClaim" or status_access.GATE not in self.features:
            return []
        return list(status_access.status_access_problems(new, old, writer))

    @made_once
    def features(self) -> "rules.Features":
        """The gates that are on; the default ones where none are given."""
        from dralab.api.resource import rules

        return rules.DEFAULT_1_36 if self._features is None else self._features

    @made_once
    def _rules(self) -> ModuleType:
        """The module, imported once: an import in each call would be slow."""
        from dralab.api.resource import rules

        return rules

    def prepare_create(self, value: JsonDict, now: str) -> None:
        """Fill in defaults; drop the status and the fields of features that are off."""
        value.pop("status", None)
        self._become(value, self._rules.default(value, now=now), None)

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """Fill in defaults; drop the fields of features that are off and were not used."""
        self._become(new, self._rules.default_update(new, old, now=now), old)

    def prepare_status(self, new: JsonDict, old: JsonDict, now: str) -> None:
        """The same for the status."""
        self._become(new, self._rules.default_update(new, old, now=now), old)

    def _become(self, value: JsonDict, wanted: JsonDict, old: JsonDict | None) -> None:
        wanted = dict(self._rules.without_disabled(wanted, self.features, old))
        value.clear()
        value.update(wanted)

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of a new object."""
        found: list[FieldError] = self._rules.validate_create(value, self.features, compiled)
        return found

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a change."""
        found: list[FieldError] = self._rules.validate_update(new, old, "", self.features, compiled)
        return found

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a change of the status."""
        found: list[FieldError] = self._rules.validate_update(
            new, old, "status", self.features, compiled
        )
        return found

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:  # noqa: ARG002
        """Return the warnings about the name of a slice's driver."""
        driver = (value.get("spec") or {}).get("driver") or ""
        if driver == driver.lower():
            return []
        shown = go_quoted(driver)
        why = f"driver names should be lowercase; {shown} contains uppercase characters"
        return [f"spec.driver: {why}"]

    def in_version(self, version: str, kind: str, errors: Sequence[FieldError]) -> list[FieldError]:
        """Return errors with the paths of the version that the client wrote."""
        form = _form(version, kind)
        found: list[FieldError] = self._rules.errors_in(form, kind, errors)
        return found


class DeviceClassStrategy(DeviceStrategy):
    """Device classes: upstream does not validate their `generateName`."""

    prefixed = False


def compiled(expression: str, features: "rules.Features", *, derived: bool) -> "rules.Compiled":
    """Return the compiler's errors for a selector or a derived attribute."""
    # Its import costs half a start, and only selectors need it.
    from dralab.allocation import cel_compiler

    return cel_compiler.compiled(expression, features, derived=derived)


def hub_type(kind: str) -> tuple[str, str]:
    """Return the apiVersion and kind in which objects of a kind are stored."""
    version = "v1alpha3" if kind == "ResourcePoolStatusRequest" else "v1"
    return f"{CLASSES.partition('/')[0]}/{version}", kind


def to_hub(kind: Kind, value: JsonDict) -> JsonDict:
    """Return an object in the version in which its kind is stored."""
    from dralab.api.resource import rules

    version = f"{kind.group}/{_form(kind.version, kind.kind)}"
    return rules.convert({**value, "apiVersion": version}, rules.hub_version(kind.kind))


def from_hub(kind: Kind, value: JsonDict) -> JsonDict:
    """Return a stored object in another version."""
    from dralab.api.resource import rules

    found = rules.convert(value, _form(kind.version, kind.kind))
    return {**found, "apiVersion": kind.api_version}


def _form(version: str, kind: str) -> str:
    """Return the version that has the same form: v1alpha3 of 1.32 and 1.33 is like v1beta1."""
    from dralab.api.resource.types import KINDS

    return version if version in KINDS[kind] else "v1beta1"
