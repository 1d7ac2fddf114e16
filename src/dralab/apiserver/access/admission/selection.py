"""Which admission plugins are on, by the names and flags of kube-apiserver; their configuration.

Source: k8s.io/pod-security-admission `admission/api`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Final, TypeVar

from dralab.api.yaml_documents import YamlError, single
from dralab.apiserver.access.admission.chain import Admission, ValidatingAdmission
from dralab.apiserver.access.admission.pod_security import (
    NEWEST,
    VERSION,
    NamespaceSecurity,
    PodSecuritySettings,
    Standard,
)
from dralab.apiserver.access.admission.registry import OTHERS, OURS
from dralab.files.reading import read
from dralab.objects.pod_security import LEVELS
from dralab.values.records import dataclass

Named = TypeVar("Named", Admission, ValidatingAdmission)
ENABLE, DISABLE = "--enable-admission-plugins", "--disable-admission-plugins"
CONFIGURE: Final = "--admission-control-config-file"


class AdmissionFlagError(ValueError):
    """A flag about admission cannot be used: `flag` is the option, `str` says why."""

    def __init__(self, flag: str, why: str) -> None:
        super().__init__(why)
        self.flag = flag


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionSettings:
    """Which plugins are off, and how PodSecurity is configured."""

    disabled: frozenset[str] = frozenset()
    pod_security: PodSecuritySettings = field(default_factory=PodSecuritySettings)

    def chosen(self, plugins: Sequence[Named]) -> list[Named]:
        """Return the plugins that are on."""
        return [plugin for plugin in plugins if plugin.name not in self.disabled]


def settings_of(
    enabled: Sequence[str] = (), disabled: Sequence[str] = (), configuration: Path | None = None
) -> AdmissionSettings:
    """Return the settings for these flags. AdmissionFlagError."""
    for flag, names in ((ENABLE, enabled), (DISABLE, disabled)):
        for name in names:
            if name not in OURS | OTHERS:
                known = ", ".join(sorted(OURS))
                raise AdmissionFlagError(flag, f"unknown plugin {name!r}; known: {known}")
    if missing := sorted(set(enabled) - OURS):
        known = ", ".join(sorted(OURS))
        raise AdmissionFlagError(ENABLE, f"{missing[0]} is not available here; known: {known}")
    if both := sorted(set(enabled) & set(disabled)):
        raise AdmissionFlagError(ENABLE, f"{both[0]} is in {DISABLE} as well")
    pod_security = PodSecuritySettings() if configuration is None else _configured(configuration)
    return AdmissionSettings(disabled=frozenset(disabled), pod_security=pod_security)


def _configured(path: Path) -> PodSecuritySettings:
    """Return the PodSecurity settings of an AdmissionConfiguration. AdmissionFlagError."""
    document = _document(path)
    found = PodSecuritySettings()
    for index, plugin in enumerate(_listed(document.get("plugins"), path, "plugins")):
        place = f"plugins[{index}]"
        name = plugin.get("name") if isinstance(plugin, dict) else None
        if name != "PodSecurity":
            raise AdmissionFlagError(
                CONFIGURE, f"{path}: {place}.name: {name!r} does not support configuration"
            )
        given = plugin.get("configuration")
        if given is None and isinstance(plugin.get("path"), str):
            given = _document(path.parent / plugin["path"])
        found = _pod_security(given, path, f"{place}.configuration")
    return found


def _document(path: Path) -> Mapping[str, Any]:
    try:
        found = single(read(path))
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise AdmissionFlagError(CONFIGURE, f"cannot read {path}: {why}") from error
    except YamlError as error:
        raise AdmissionFlagError(CONFIGURE, f"{path}:{error.line}: {error.message}") from error
    if not isinstance(found, dict):
        raise AdmissionFlagError(CONFIGURE, f"{path}: expected an object")
    return found


def _pod_security(given: Any, path: Path, place: str) -> PodSecuritySettings:
    if not isinstance(given, dict) or given.get("kind") != "PodSecurityConfiguration":
        raise AdmissionFlagError(CONFIGURE, f"{path}: {place}: expected a PodSecurityConfiguration")
    defaults = _mapping(given.get("defaults"), path, f"{place}.defaults")
    exempt = _mapping(given.get("exemptions"), path, f"{place}.exemptions")
    found: dict[str, Standard] = {}
    for mode in ("enforce", "audit", "warn"):
        level = defaults.get(mode) or "privileged"
        version = defaults.get(f"{mode}-version") or NEWEST
        if level not in LEVELS:
            why = f"{place}.defaults.{mode}: must be one of {', '.join(LEVELS)}"
            raise AdmissionFlagError(CONFIGURE, f"{path}: {why}")
        if version != NEWEST and not VERSION.fullmatch(str(version)):
            why = f'{place}.defaults.{mode}-version: must be "latest" or "v1.x"'
            raise AdmissionFlagError(CONFIGURE, f"{path}: {why}")
        found[mode] = Standard(level, version)

    def names(part: str) -> frozenset[str]:
        listed = _listed(exempt.get(part), path, f"{place}.exemptions.{part}")
        return frozenset(str(name) for name in listed)

    return PodSecuritySettings(
        defaults=NamespaceSecurity(**found),
        usernames=names("usernames"),
        namespaces=names("namespaces"),
        runtime_classes=names("runtimeClasses"),
    )


def _mapping(given: Any, path: Path, place: str) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, dict):
        raise AdmissionFlagError(CONFIGURE, f"{path}: {place}: expected an object")
    return given or {}


def _listed(given: Any, path: Path, place: str) -> Sequence[Any]:
    if given is not None and not isinstance(given, list):
        raise AdmissionFlagError(CONFIGURE, f"{path}: {place}: expected a list")
    return given or []
