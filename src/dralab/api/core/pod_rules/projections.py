"""Files that a node makes in a volume: keys of config maps and secrets, fields, tokens."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from dralab.api import fields
from dralab.api.core.certificates import signer_errors
from dralab.api.core.pod_rules.environment import IN_FILES, field_reference, resource_reference
from dralab.api.core.pod_rules.parts import mode
from dralab.api.core.volume_sources import descending_errors
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.api.rules import RuleTables
from dralab.values import names
from dralab.values.json_types import JsonObject

SHORTEST_CERTIFICATE: Final = 3600
LONGEST_CERTIFICATE: Final = 91 * 24 * 3600
LONGEST_OF_KUBERNETES: Final = 24 * 3600
TWICE: Final = "conflicting duplicate paths"


def _file(text: str, path: str) -> list[FieldError]:
    """A name is one of a file that a user may ask for."""
    errors = descending_errors(text, path)
    if (text.startswith("..") and not text.startswith("../") and text != "..") or text == "..":
        errors.append(fields.invalid_value(path, text, "must not start with '..'"))
    return errors


def _field_in_file(reference: JsonObject, path: str) -> list[FieldError]:
    return field_reference(reference, path, IN_FILES)


def _amount_in_file(item: JsonObject, path: str) -> list[FieldError]:
    amount = item.get("resourceFieldRef")
    if amount is None or item.get("fieldRef") is not None:
        return []
    return resource_reference(amount, f"{path}.resourceFieldRef", in_file=True)


RULES: Final = RuleTables(globals(), mode, signer_errors)
KEY_FILE: Final = RULES["validateKeyToPath"]


def field_files(items: Sequence[JsonObject], path: str) -> list[FieldError]:
    """Return the errors of fields of a pod that become files; their places are left out."""
    at = path.rpartition(".")[0]
    return [e for item in items for e in RULES["validateDownwardAPIVolumeFile"](item, at)]


class _Taken(NamedTuple):
    """The files of a projected volume, and what an error shows of a duplicate."""

    volume: str
    files: set[str]
    shown: str | None


def projected(source: JsonObject, path: str) -> list[FieldError]:
    """Return the errors of a volume that is put together from several sources."""
    errors: list[FieldError] = []
    files: set[str] = set()
    kinds = RULES["validateProjectionSources"].checks
    for index, part in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{index}]"
        given = [kind for kind in kinds if part.get(kind) is not None]
        for kind in given:
            shown = part[kind].get("name") or "" if kind in {"secret", "configMap"} else None
            errors += kinds[kind](part[kind], f"{at}.{kind}", _Taken(path, files, shown))
        if len(given) > 1:
            why = "may not specify more than 1 volume type per source"
            errors.append(fields.forbidden(at, why))
    return errors


def _once(file: str, path: str, taken: _Taken) -> list[FieldError]:  # noqa: ARG001
    if file not in taken.files:
        taken.files.add(file)
        return []
    shown = file if taken.shown is None else taken.shown
    return [fields.invalid_value(taken.volume, shown, TWICE)]


def _token_file(source: JsonObject, path: str, taken: _Taken) -> list[FieldError]:  # noqa: ARG001
    # Upstream names the volume and not its source.
    return RULES["tokenFile"](source, taken.volume)


def _projected_fields(items: Sequence[JsonObject], path: str, taken: _Taken) -> list[FieldError]:
    at = path.rpartition(".")[0]
    return [error for item in items for error in RULES["field"](item, at, taken)]


def _bundle_name(name: str) -> list[str]:
    signer, colon, rest = name.rpartition(":")
    if not colon:
        return names.subdomain_problems(name)
    return (
        names.subdomain_problems(rest)
        if signer
        else ['ClusterTrustBundle without signer name must not have ":" in its name']
    )


def _bundle_in_go(source: JsonObject) -> dict[str, Any]:
    parts = {"Name": "name", "SignerName": "signerName", "LabelSelector": "labelSelector",
             "Optional": "optional", "Path": "path"}  # fmt: skip
    return {shown: source.get(part) for shown, part in parts.items()}


def _domain_key(key: str, path: str) -> list[FieldError]:
    if not key:
        return [fields.required(path)]
    if whys := names.qualified_problems(key):
        return fields.each(path, key, whys)
    if "/" not in key:
        why = 'must be a domain-prefixed key (such as "acme.io/foo")'
        return [fields.invalid_value(path, key, why)]
    return []


def _duration(seconds: int, signer: str, path: str) -> list[FieldError]:
    domain, errors = signer.partition("/")[0], []
    own = domain == "kubernetes.io" or domain.endswith(".kubernetes.io")
    most = LONGEST_OF_KUBERNETES if own else LONGEST_CERTIFICATE
    if seconds < SHORTEST_CERTIFICATE:
        why = f"if provided, maxExpirationSeconds must be >= {SHORTEST_CERTIFICATE}"
        errors.append(fields.invalid_value(path, seconds, why))
    if seconds > most:
        why = f"if provided, maxExpirationSeconds must be <= {most}"
        errors.append(fields.invalid_value(path, seconds, why))
    return errors


def _bundle_named(source: JsonObject, path: str) -> list[FieldError]:
    errors: list[FieldError] = []
    name, signer = source.get("name"), source.get("signerName")
    selector = source.get("labelSelector")
    if name is not None and signer is not None:
        why = "only one of name and signerName may be used"
        errors.append(fields.invalid_value(path, _bundle_in_go(source), why))
    elif name is not None:
        if not name:
            errors.append(fields.required(f"{path}.name", "must be a valid object name"))
        whys = [f"not a valid clustertrustbundlename: {why}" for why in _bundle_name(name)]
        errors += fields.each(f"{path}.name", name, whys)
        if selector is not None:
            why = "labelSelector must be unset if name is specified"
            errors.append(fields.invalid_value(f"{path}.labelSelector", selector, why))
    elif signer is not None:
        if not signer:
            errors.append(fields.required(f"{path}.signerName", "must be a valid signer name"))
        errors += signer_errors(signer, f"{path}.signerName")
        errors += label_selector_problems(selector or {}, f"{path}.labelSelector")
    else:
        errors.append(fields.required(path, "either name or signerName must be specified"))
    return errors


def _lifetime(source: JsonObject, path: str) -> list[FieldError]:
    seconds, at = source.get("maxExpirationSeconds"), f"{path}.maxExpirationSeconds"
    return [] if seconds is None else _duration(seconds, source.get("signerName") or "", at)


def _annotations(annotations: JsonObject, path: str) -> list[FieldError]:
    return [error for key in annotations for error in _domain_key(key.lower(), path)]
