"""Files that a node makes in a volume: keys of config maps and secrets, fields, tokens."""

from typing import Any, Final

from dralab.api import fields
from dralab.api.core.addresses import each
from dralab.api.core.certificates import signer_errors
from dralab.api.core.pod_rules.environment import IN_FILES, field_reference, resource_reference
from dralab.api.core.pod_rules.parts import mode
from dralab.api.core.volume_sources import descending_errors, missing
from dralab.api.fields import FieldError
from dralab.api.label_selectors import label_selector_problems
from dralab.values import names
from dralab.values.json_types import JsonObject

SHORTEST_TOKEN: Final = 600  # seconds
LONGEST_TOKEN: Final = 2**32
SHORTEST_CERTIFICATE: Final = 3600
LONGEST_CERTIFICATE: Final = 91 * 24 * 3600
LONGEST_OF_KUBERNETES: Final = 24 * 3600
KEY_TYPES: Final = ("RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519")
CERTIFICATE_FILES: Final = ("credentialBundlePath", "keyPath", "certificateChainPath")
TWICE: Final = "conflicting duplicate paths"


def _file(text: str, path: str) -> list[FieldError]:
    """Return whether a name is not one of a file that a user may ask for."""
    errors = descending_errors(text, path)
    if (text.startswith("..") and not text.startswith("../") and text != "..") or text == "..":
        errors.append(fields.invalid_value(path, text, "must not start with '..'"))
    return errors


def key_items(source: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with the keys of a config map or secret that become files."""
    errors: list[FieldError] = []
    for index, item in enumerate(source.get("items") or ()):
        errors += _key_item(item, f"{path}.items[{index}]")
    return errors


def _key_item(item: JsonObject, path: str) -> list[FieldError]:
    errors = missing(item, path, "key", "path")
    errors += _file(item.get("path") or "", f"{path}.path")
    return errors + mode(item, "mode", path)


def downward_items(source: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with the fields of a pod that become files."""
    errors: list[FieldError] = []
    for item in source.get("items") or ():
        errors += _downward_item(item, path)
    return errors


def _downward_item(item: JsonObject, path: str) -> list[FieldError]:
    errors = missing(item, path, "path") + _file(item.get("path") or "", f"{path}.path")
    field, amount = item.get("fieldRef"), item.get("resourceFieldRef")
    if field is not None:
        errors += field_reference(field, f"{path}.fieldRef", IN_FILES)
        if amount is not None:
            why = "fieldRef and resourceFieldRef can not be specified simultaneously"
            errors.append(fields.invalid_value(path, "resource", why))
    elif amount is not None:
        errors += resource_reference(amount, f"{path}.resourceFieldRef", in_file=True)
    else:
        errors.append(fields.required(path, "one of fieldRef and resourceFieldRef is required"))
    return errors + mode(item, "mode", path)


def projected(source: JsonObject, path: str) -> list[FieldError]:
    """Return what is wrong with a volume that is put together from several sources."""
    errors: list[FieldError] = []
    taken: set[str] = set()
    for index, part in enumerate(source.get("sources") or ()):
        at = f"{path}.sources[{index}]"
        given = [kind for kind in KINDS if part.get(kind) is not None]
        for kind in given:
            errors += _projection(kind, part[kind], f"{at}.{kind}", path, taken)
        if len(given) > 1:
            why = "may not specify more than 1 volume type per source"
            errors.append(fields.forbidden(at, why))
    return errors


KINDS: Final = (
    "secret", "configMap", "downwardAPI", "serviceAccountToken", "clusterTrustBundle",
    "podCertificate",
)  # fmt: skip


def _projection(
    kind: str, source: JsonObject, at: str, path: str, taken: set[str]
) -> list[FieldError]:
    if kind == "serviceAccountToken":
        return _token(source, at, path)
    if kind == "clusterTrustBundle":
        return _bundle(source, at) + _once(source.get("path") or "", None, path, taken)
    if kind == "podCertificate":
        return _certificate(source, at, path, taken)
    errors = [] if kind == "downwardAPI" else missing(source, at, "name")
    for index, item in enumerate(source.get("items") or ()):
        if kind == "downwardAPI":
            errors += _downward_item(item, at)
            shown = None
        else:
            errors += _key_item(item, f"{at}.items[{index}]")
            shown = source.get("name") or ""
        if file := item.get("path"):
            errors += _once(file, shown, path, taken)
    return errors


def _once(file: str, shown: str | None, path: str, taken: set[str]) -> list[FieldError]:
    if file not in taken:
        taken.add(file)
        return []
    return [fields.invalid_value(path, file if shown is None else shown, TWICE)]


def _token(source: JsonObject, at: str, path: str) -> list[FieldError]:
    errors, seconds = [], source.get("expirationSeconds") or 0
    if seconds < SHORTEST_TOKEN:
        why = "may not specify a duration less than 10 minutes"
        errors.append(fields.invalid_value(f"{at}.expirationSeconds", seconds, why))
    if seconds > LONGEST_TOKEN:
        why = "may not specify a duration larger than 2^32 seconds"
        errors.append(fields.invalid_value(f"{at}.expirationSeconds", seconds, why))
    # Upstream names the volume and not its source.
    file = source.get("path") or ""
    return errors + (_file(file, f"{path}.path") if file else [fields.required(f"{path}.path")])


def _bundle(source: JsonObject, path: str) -> list[FieldError]:
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
        errors += each(f"{path}.name", name, whys)
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
    return errors + missing(source, path, "path") + _file(source.get("path") or "", f"{path}.path")


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


def _certificate(source: JsonObject, at: str, path: str, taken: set[str]) -> list[FieldError]:
    signer = source.get("signerName") or ""
    errors = signer_errors(signer, f"{at}.signerName")
    for key in source.get("userAnnotations") or ():
        errors += _domain_key(key.lower(), f"{at}.userAnnotations")
    if (kind := source.get("keyType") or "") not in KEY_TYPES:
        errors.append(fields.not_supported(f"{at}.keyType", kind, KEY_TYPES, ordered=True))
    if (seconds := source.get("maxExpirationSeconds")) is not None:
        errors += _duration(seconds, signer, f"{at}.maxExpirationSeconds")
    given = [part for part in CERTIFICATE_FILES if source.get(part)]
    for part in given:
        errors += _file(source[part], f"{at}.{part}")
        errors += _once(source[part], None, path, taken)
    if not given:
        why = "specify at least one of credentialBundlePath, keyPath, and certificateChainPath"
        errors.append(fields.required(at, why))
    return errors


def _domain_key(key: str, path: str) -> list[FieldError]:
    if not key:
        return [fields.required(path)]
    if whys := names.qualified_problems(key):
        return each(path, key, whys)
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
