"""The device API generations that a cluster serves: today's, k8srm's, dra-evolution's, classic.

A profile is a set of kinds with their rules. They are not built into the server, but registered
like custom resources, without definitions in the store.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

from dralab.api.fields import OMITTED, FieldError, invalid_value
from dralab.api.kinds import ALL_VERBS, Kinds, kind_of
from dralab.apiserver.verbs.kinds.custom_rules import CustomStrategy
from dralab.apiserver.verbs.server import Resources
from dralab.apiserver.verbs.state.context import Context
from dralab.objects.claims import has_device_claims
from dralab.prototypes.findings import NormalizedDocument
from dralab.prototypes.spelling import respell
from dralab.values.json_types import JsonDict, JsonObject
from dralab.values.names import subdomain_problems

DEFAULT: Final = ("v1",)
STATUS_VERBS: Final = ("get", "patch", "update")
TODAY: Final = "resource.k8s.io"
# Of kinds that Kubernetes had built in: its components patch them as such.
BUILT_IN: Final = {"strategic": True}
# profile → the group and version whose meaning it shares with another profile.
RIVALS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "evolution": (
        ("v1", "resource.k8s.io/v1alpha3"),
        ("classic", "resource.k8s.io/v1alpha2"),
    ),
}


class ProfileError(ValueError):
    """Profiles that are unknown or cannot be served together."""


def checked(names: Sequence[str]) -> tuple[str, ...]:
    """Return the profiles in the order of `NAMES`. ProfileError."""
    unknown = [name for name in names if name not in NAMES]
    if unknown:
        raise ProfileError(f'unknown profile "{unknown[0]}"; known: {", ".join(NAMES)}')
    for name, rivals in RIVALS.items():
        for other, version in rivals:
            if name in names and other in names:
                raise ProfileError(
                    f"{name} and {other} cannot be served together: {version} has a different "
                    f"meaning in each"
                )
    return tuple(name for name in NAMES if name in names)


def install(resources: Resources, names: Sequence[str]) -> None:
    """Serve these profiles from a server that serves today's API; call it before the first request.

    `devmgmtproto.k8s.io` has no rival and is served whatever the profiles are.
    """
    context = resources.context
    if "v1" not in names:
        for kind in list(context.kinds):
            if kind.group == TODAY:
                context.kinds.remove(kind.group, kind.version, kind.plural)
    for name, installer in INSTALLERS.items():
        if name in names or name == "k8srm":
            installer(resources)
    if "k8srm" in names:
        config_maps = context.kinds.find("", "v1", "configmaps")
        resources.extend(config_maps, {}, mend=_mended_config_map)
    for listener in context.on_kinds_changed:
        listener()


def kinds_of(names: Sequence[str]) -> Kinds:
    """Return the kinds that a server with these profiles has from its beginning."""
    from dralab.apiserver.server import ApiServer
    from dralab.apiserver.storage import MemoryStore

    resources = ApiServer(MemoryStore()).resources
    install(resources, names)
    return resources.kinds


def _k8srm(resources: Resources) -> None:
    from dralab.prototypes.k8srm import kinds

    def normalized(value: JsonDict) -> NormalizedDocument:
        from dralab.prototypes.k8srm.normalize import normalize  # with the first object: large

        return normalize(value)

    context = resources.context
    for kind in kinds.KINDS:
        register(context, kinds.GROUP, kinds.VERSION, kind, normalized, any_case=True)
    # The prototype's mock server knew this one kind of configuration.
    free: JsonDict = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    config = {
        "kind": "FoozerConfig",
        "plural": "foozerconfigs",
        "singular": "foozerconfig",
        "namespaced": True,
        "schema": {"type": "object", "properties": {"spec": free}},
    }
    register(context, "foozer.example.com", "v1alpha1", config)
    resources.extend(
        context.kinds.find("", "v1", "pods"),
        {
            ("spec", "deviceClaims"): kinds.POD_CLAIMS,
            ("spec", "containers", "*", "devices"): kinds.CONTAINER_DEVICES,
        },
        check=_device_claim_errors,
    )
    context.rules.claims_of_pods[f"{kinds.GROUP}/deviceclaims"] = _device_claims


def _device_claims(pod: JsonObject) -> Collection[str]:
    """Return the names of the DeviceClaims that a pod uses."""
    if not has_device_claims(pod):
        return ()
    from dralab.prototypes.k8srm.pod_claims import claim_names  # with the first such pod: large

    return claim_names(pod)


def _device_claim_errors(pod: JsonDict) -> list[FieldError]:
    """Return the errors of how a pod asks for devices of k8srm."""
    if not has_device_claims(pod):
        return []
    from dralab.prototypes.k8srm.normalize import normalize  # with the first such pod: large

    return _errors(pod, normalize({**pod, "apiVersion": "v1", "kind": "Pod"}), "spec.deviceClaims")


def _errors(value: JsonDict, read: NormalizedDocument, below: str = "") -> list[FieldError]:
    """Return the reader's errors at a field or below it."""
    return [
        invalid_value(each.field, _at(value, each.field), each.message)
        for each in read.findings
        if each.level == "invalid" and each.field.startswith(below)
    ]


def _mended_config_map(value: JsonDict) -> list[str]:
    """Read numbers in a ConfigMap's data as text: the prototype's own files have them."""
    data = value.get("data")
    if not isinstance(data, dict) or all(isinstance(item, str) for item in data.values()):
        return []
    from dralab.prototypes.k8srm.normalize import config_map_data

    value["data"], findings = config_map_data(data)
    return [str(each) for each in findings if each.level == "legacy"]


def _evolution(resources: Resources) -> None:
    from dralab.prototypes.evolution import kinds
    from dralab.prototypes.placement import stored_name

    def normalized(value: JsonDict) -> NormalizedDocument:
        from dralab.prototypes.evolution.normalize import normalize

        return normalize(value)

    context = resources.context
    for kind in kinds.KINDS:
        # Its own store: today's objects of the same names mean something else.
        hub = stored_name("evolution", kinds.GROUP, kind["plural"])
        register(context, kinds.GROUP, kinds.VERSION, kind, normalized, hub=hub)


def _classic(resources: Resources) -> None:
    from dralab.prototypes.classic import kinds, structured
    from dralab.prototypes.placement import stored_name

    context = resources.context
    for kind in (*structured.KINDS, *kinds.RESOURCE_KINDS):
        # Its own store: today's claims of the same names are others.
        hub = stored_name("classic", structured.GROUP, kind["plural"])
        checked = kind | BUILT_IN
        register(context, structured.GROUP, kinds.VERSION, checked, structured.normalize, hub=hub)
    register(context, kinds.STATE_GROUP, kinds.DRIVER_VERSION, kinds.STATE)
    for kind in kinds.DRIVER_KINDS:
        register(context, kinds.DRIVER, kinds.DRIVER_VERSION, kind)
    entry = ("spec", "resourceClaims", "*", "source")
    resources.extend(context.kinds.find("", "v1", "pods"), {entry: kinds.POD_SOURCE})
    for plural in ("deployments", "replicasets", "statefulsets", "daemonsets"):
        workload = context.kinds.find("apps", "v1", plural)
        resources.extend(workload, {("spec", "template", *entry): kinds.POD_SOURCE})


INSTALLERS: Final[Mapping[str, Callable[[Resources], None]]] = {
    "k8srm": _k8srm,
    "evolution": _evolution,
    "classic": _classic,
}


NAMES: Final = (*DEFAULT, *INSTALLERS)


class PrototypeStrategy(CustomStrategy):
    """The rules of a kind whose documents an older generation reads.

    What the reader calls invalid is refused; what it reads as something else, the client is told.
    """

    unconditional = True

    def __init__(
        self,
        versions: Mapping[str, Mapping[str, Any]],
        read: Callable[[JsonDict], NormalizedDocument] | None,
        *,
        any_case: bool = False,
    ) -> None:
        super().__init__(versions)
        self.read = read
        self.any_case = any_case
        self._written = [each["schema"]["openAPIV3Schema"] for each in versions.values()]

    def mend(self, value: JsonDict) -> list[str]:
        """Correct the case of field names, where the generation reads any case."""
        if not self.any_case:
            return []
        found = [each for schema in self._written for each in respell(schema, value)]
        return [str(each) for each in found if each.level == "legacy"]

    def name_problems(self, name: str) -> list[str]:
        """Return the problems of a name; upper case is accepted, as in the prototypes' files."""
        return subdomain_problems(name.lower())

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of an object: its schema's errors, then its reader's."""
        found = super().validate(value)
        if found or self.read is None:
            return found
        return _errors(value, self.read(value))

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:  # noqa: ARG002 - every field may change
        """Return the errors of a changed object."""
        return self.validate(new)

    def validate_status(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of a changed status."""
        found = super().validate_status(new, old)
        if found or self.read is None:
            return found
        return _errors(new, self.read(new), "status")

    def warnings(self, value: JsonDict, old: JsonDict | None = None) -> list[str]:  # noqa: ARG002
        """Return the warnings about fields that were reinterpreted."""
        if self.read is None:
            return []
        return [str(each) for each in self.read(value).findings if each.level != "invalid"][:20]


def register(  # noqa: PLR0917 - the coordinates of a kind
    context: Context,
    group: str,
    version: str,
    described: Mapping[str, Any],
    read: Callable[[JsonDict], NormalizedDocument] | None = None,
    hub: str = "",
    *,
    any_case: bool = False,
) -> None:
    """Serve one kind, as `prototypes.schema_words.kind` describes it."""
    served = {
        "name": version,
        "served": True,
        "storage": True,
        "schema": {"openAPIV3Schema": described["schema"]},
        "additionalPrinterColumns": described.get("columns") or [],
    }
    entry = {
        "group": group,
        "version": version,
        "kind": described["kind"],
        "plural": described["plural"],
        "singular": described["singular"],
        "namespaced": described["namespaced"],
        "verbs": ALL_VERBS,
        "shortNames": described.get("shortNames"),
        "subresources": (
            {"status": {"kind": described["kind"], "verbs": STATUS_VERBS}}
            if described.get("status")
            else {}
        ),
        "fields": described.get("fields") or [],
        "strategic": described.get("strategic", False),
        "generation": True,
        "hub": hub,
    }
    kind = kind_of(entry, custom=served)
    context.rules.strategies[kind.hub] = PrototypeStrategy(
        {version: served}, read, any_case=any_case
    )
    context.rules.hub_types[kind.hub] = (kind.api_version, kind.kind)
    context.kinds.add(kind)


def _at(value: Any, path: str) -> Any:
    """Return the scalar at a field path; nothing for other values."""
    for part in path.replace("[", ".[").split("."):
        if part.startswith("["):
            index = part[1:-1]
            if not isinstance(value, list) or not index.isdigit() or int(index) >= len(value):
                return OMITTED
            value = value[int(index)]
        elif isinstance(value, dict):
            value = value.get(part, OMITTED)
        else:
            return OMITTED
    return value if not isinstance(value, (dict, list)) else OMITTED
