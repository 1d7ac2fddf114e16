"""Which API versions a server serves: kube-apiserver's `--runtime-config`.

Source: k8s.io/apiserver `pkg/server/options/api_enablement.go`.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Final

from dralab.api.kinds import Kind, Kinds
from dralab.api.releases import MIXED

LEVELS: Final[Mapping[str, str]] = {
    "api/ga": r"v\d+",
    "api/beta": r"v\d+beta\d+",
    "api/alpha": r"v\d+alpha\d+",
}
ALL: Final = "api/all"
CORE: Final = "v1"


class RuntimeConfigError(ValueError):
    """A text is not a runtime configuration; `str` names the part that is wrong."""


def parse(text: str, release: str = MIXED) -> dict[str, bool]:
    """Return the switches of a text. RuntimeConfigError.

    >>> parse("api/beta=true,resource.k8s.io/v1beta1=false")
    {'api/beta': True, 'resource.k8s.io/v1beta1': False}
    >>> parse("api/v1")
    {'v1': True}
    """
    found = {}
    known = Kinds.standard(release=release)
    for part in filter(None, (part.strip() for part in text.split(","))):
        key, _, value = part.partition("=")
        key = re.sub(f"^api/{CORE}(?=/|$)", CORE, key)  # upstream's older name of the core API
        if value.lower() not in {"", "true", "false"}:
            raise RuntimeConfigError(f"{part!r}: expected {key}=true or {key}=false")
        if key != ALL and key not in LEVELS and not any(_names(key, kind) for kind in known):
            raise RuntimeConfigError(
                f"{key!r} is not served: expected GROUP/VERSION, GROUP/VERSION/RESOURCE, {ALL}, "
                f"{', '.join(LEVELS)}"
            )
        found[key] = value.lower() != "false"
        if key.partition("/")[0] == CORE and not found[key]:
            raise RuntimeConfigError(f"{part!r}: a server needs the core API")
    return found


def kinds_of(config: Mapping[str, bool], *, all_versions: bool, release: str = MIXED) -> Kinds:
    """Return the kinds of a server: of all versions, or of those that are on by default.

    The most exact switch of a kind counts: its resource, its version, its level, all.
    """
    default = {(kind.api_version, kind.plural) for kind in Kinds.standard(also=(), release=release)}
    served = Kinds.standard(release=release)
    for kind in list(served):
        on = next(
            _switches(config, kind), all_versions or (kind.api_version, kind.plural) in default
        )
        if not on:
            served.remove(kind.group, kind.version, kind.plural)
    return served


def _switches(config: Mapping[str, bool], kind: Kind) -> Iterator[bool]:
    if kind.api_version == CORE:
        yield True
    for key in (f"{kind.api_version}/{kind.plural}", kind.api_version):
        if key in config:
            yield config[key]
    for level, pattern in LEVELS.items():
        if level in config and re.fullmatch(pattern, kind.version):
            yield config[level]
    if ALL in config:
        yield config[ALL]


def _names(key: str, kind: Kind) -> bool:
    return key in {kind.api_version, f"{kind.api_version}/{kind.plural}"}
