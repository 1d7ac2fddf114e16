"""Names in resource.k8s.io: drivers, pools, devices, requests, attributes, share IDs."""

import re
from collections.abc import Mapping
from typing import Final

from dralab.api.fields import FieldError, each, invalid_value, required, too_long
from dralab.values.names import (
    c_identifier_problems,
    label_problems,
    label_value_problems,
    qualified_problems,
    subdomain_problems,
)
from dralab.values.remembering import remembered

MAX_DRIVER: Final = 63
MAX_POOL: Final = 253
MAX_IDENTIFIER: Final = 32
MAX_KEY: Final = MAX_DRIVER + 1 + MAX_IDENTIFIER
UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.ASCII)
ANY_UUID: Final = re.compile(
    r"(urn:uuid:)?[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}"
    r"|\{[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\}|[0-9a-fA-F]{32}",
    re.ASCII,
)

# The same few names come again with every object: whether one is good is worth remembering,
# the sentences about a bad one are not.
_good_label: Final = remembered(1 << 16)(lambda name: not label_problems(name))
_good_qualified: Final = remembered(1 << 14)(lambda name: not _qualified_name(name, ""))


@remembered(1 << 12)
def _good_driver(name: str) -> bool:
    return len(name) <= MAX_DRIVER and not subdomain_problems(name.lower())


@remembered(1 << 16)
def _good_pool(name: str) -> bool:
    return len(name) <= MAX_POOL and not any(map(subdomain_problems, name.split("/")))


def label_errors(name: str, path: str) -> list[FieldError]:
    """Return the problems of a DNS label: devices, requests, counters."""
    return [] if _good_label(name) else each(path, name, label_problems(name))


def subdomain_errors(name: str, path: str) -> list[FieldError]:
    """Return the problems of a DNS subdomain: nodes, classes."""
    return each(path, name, subdomain_problems(name))


def label_key_errors(key: str, path: str) -> list[FieldError]:
    """Return the problems of a key of a label: taints, tolerations, binding conditions."""
    return each(path, key, qualified_problems(key))


def label_value_errors(value: str, path: str) -> list[FieldError]:
    """Return the problems of a value of a label."""
    return each(path, value, label_value_problems(value))


def labels_errors(labels: Mapping[str, str], path: str) -> list[FieldError]:
    """Return the errors of a map of labels."""
    found: list[FieldError] = []
    for key in sorted(labels):
        found += label_key_errors(key, path) + label_value_errors(labels[key], path)
    return found


def class_errors(name: str, path: str) -> list[FieldError]:
    """Return the problems of a DeviceClass name."""
    return subdomain_errors(name, path) if name else [required(path)]


def driver_errors(name: str, path: str) -> list[FieldError]:
    """Return the problems of a driver name; the case of letters does not matter."""
    if not name:
        return [required(path)]
    if _good_driver(name):
        return []
    found = [too_long(path, MAX_DRIVER)] if len(name) > MAX_DRIVER else []
    return found + [invalid_value(path, name, text) for text in subdomain_problems(name.lower())]


def pool_errors(name: str, path: str) -> list[FieldError]:
    """Return the problems of a pool name: DNS subdomains joined by slashes."""
    if not name:
        return [required(path)]
    if _good_pool(name):
        return []
    found = [too_long(path, MAX_POOL)] if len(name) > MAX_POOL else []
    for part in name.split("/"):
        found += subdomain_errors(part, path)
    return found


def share_id_errors(uid: str, path: str) -> list[FieldError]:
    """Return the problems of a share ID: a UUID in lower case."""
    if UUID.fullmatch(uid):
        return []
    if ANY_UUID.fullmatch(uid):
        return [
            invalid_value(
                path,
                uid,
                "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` "
                "with lowercase hexadecimal characters",
            )
        ]
    lengths = {36, 36 + 9, 36 + 2, 32}
    why = "invalid UUID format" if len(uid) in lengths else f"invalid UUID length: {len(uid)}"
    return [invalid_value(path, uid, f"error validating uid: {why}")]


def qualified_errors(name: str, path: str) -> list[FieldError]:
    """Return the problems of an attribute's name: an identifier, maybe with a domain."""
    return [] if _good_qualified(name) else _qualified_name(name, path)


def fully_qualified_errors(name: str, path: str) -> list[FieldError]:
    """Return the problems of an attribute's name with its domain, as constraints need it."""
    found = qualified_errors(name, path)
    if "/" not in name:
        text = "a fully qualified name must be a domain and a name separated by a slash"
        found = [*found, invalid_value(path, name, text)]
    return found


def is_extended_resource(name: str) -> bool:
    """Return whether a text names an extended resource: a domain that is not Kubernetes' own."""
    return (
        "/" in name
        and "kubernetes.io/" not in name
        and not name.startswith("requests.")
        and not qualified_problems(f"requests.{name}")
    )


def shortened(key: str) -> str:
    """Return a key of a map as error paths show it: long ones lose their middle."""
    if len(key) <= MAX_KEY:
        return key
    remaining = MAX_KEY - 3
    return f"{key[: (remaining + 1) // 2]}...{key[-(remaining // 2) :]}"


def _qualified_name(name: str, path: str) -> list[FieldError]:
    domain, slash, rest = name.partition("/")
    if not slash:
        return _identifier(name, path)
    if "/" in rest:
        return [invalid_value(path, name, "must not contain more than one slash")]
    found = (
        driver_errors(domain, path)
        if domain
        else [invalid_value(path, "", "the domain must not be empty")]
    )
    return found + (
        _identifier(rest, path) if rest else [invalid_value(path, "", "the name must not be empty")]
    )


def _identifier(name: str, path: str) -> list[FieldError]:
    found = [too_long(path, MAX_IDENTIFIER)] if len(name) > MAX_IDENTIFIER else []
    return found + each(path, name, c_identifier_problems(name))
