"""Config maps and secrets: data that pods read, and that can be frozen."""

import json
from base64 import b64decode, b64encode
from collections.abc import Iterable
from typing import Final

from dralab.api import fields
from dralab.api.fields import FieldError
from dralab.api.strategy import Strategy
from dralab.values import names
from dralab.values.json_syntax import go_error
from dralab.values.json_types import JsonDict

MAX_SIZE: Final = 1024 * 1024
DOCUMENTS: Final = frozenset({"kubernetes.io/dockercfg", "kubernetes.io/dockerconfigjson"})
FROZEN: Final = "field is immutable when `immutable` is set"
# What some types of secrets must hold.
REQUIRED_DATA: Final = {
    "kubernetes.io/dockercfg": (".dockercfg",),
    "kubernetes.io/dockerconfigjson": (".dockerconfigjson",),
    "kubernetes.io/ssh-auth": ("ssh-privatekey",),
    "kubernetes.io/tls": ("tls.crt", "tls.key"),
}


def _key_problems(keys: Iterable[str], path: str) -> list[FieldError]:
    return [
        fields.invalid_value(f"{path}[{key}]", key, why)
        for key in keys
        for why in names.config_key_problems(key)
    ]


def _frozen_problems(new: JsonDict, old: JsonDict, parts: tuple[str, ...]) -> list[FieldError]:
    if not old.get("immutable"):
        return []
    errors = []
    if not new.get("immutable"):
        errors.append(fields.forbidden("immutable", FROZEN))
    errors += [fields.forbidden(part, FROZEN) for part in parts if new.get(part) != old.get(part)]
    return errors


def _document_problems(kind: str, data: JsonDict) -> list[FieldError]:
    """Return whether credentials of a registry are not JSON; they are not shown."""
    for key in REQUIRED_DATA.get(kind, ()) if kind in DOCUMENTS else ():
        if (text := data.get(key)) is None:
            continue
        content = b64decode(text)
        try:
            json.loads(content)
        except ValueError:
            shown = "<secret contents redacted>"
            return [fields.invalid_value(f"data[{key}]", shown, go_error(content))]
    return []


class ConfigMapStrategy(Strategy):
    """Config maps."""

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of the data."""
        data, binary = value.get("data") or {}, value.get("binaryData") or {}
        if not data and not binary:
            return []
        errors = _key_problems(data, "data") + _key_problems(binary, "binaryData")
        errors += [
            fields.invalid_value(f"data[{key}]", key, "duplicate of key present in binaryData")
            for key in data
            if key in binary
        ]
        size = sum(map(len, data.values())) + sum(len(text) * 3 // 4 for text in binary.values())
        if size > MAX_SIZE:
            errors.append(fields.too_long("[]", MAX_SIZE))
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change."""
        return _frozen_problems(new, old, ("data", "binaryData")) + self.validate(new)


class SecretStrategy(Strategy):
    """Secrets; `stringData` is written, never read."""

    def default(self, value: JsonDict) -> None:
        """Fill in the type, and fold the plain text in."""
        plain = value.pop("stringData", None)
        if plain:
            data = value.setdefault("data", {})
            data |= {key: b64encode(text.encode()).decode() for key, text in plain.items()}
        value.setdefault("type", "Opaque")

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """Keep the type where the client left it out."""
        if not new.get("type"):
            new["type"] = old.get("type", "Opaque")

    def validate(self, value: JsonDict) -> list[FieldError]:
        """Return the errors of the data."""
        data = value.get("data") or {}
        errors = _key_problems(data, "data")
        errors += [
            fields.required(f"data[{key}]")
            for key in REQUIRED_DATA.get(value.get("type", ""), ())
            if key not in data
        ]
        errors += _document_problems(value.get("type", ""), data)
        if value.get("type") == "kubernetes.io/basic-auth" and not {"username", "password"} & set(
            data
        ):
            errors += [fields.required(f"data[{key}]") for key in ("username", "password")]
        if value.get("type") == "kubernetes.io/service-account-token":
            annotations = value["metadata"].get("annotations") or {}
            if not annotations.get("kubernetes.io/service-account.name"):
                where = "metadata.annotations[kubernetes.io/service-account.name]"
                errors.append(fields.required(where))
        if sum(len(text) * 3 // 4 for text in data.values()) > MAX_SIZE:
            errors.append(fields.too_long("data", MAX_SIZE))
        return errors

    def validate_update(self, new: JsonDict, old: JsonDict) -> list[FieldError]:
        """Return the errors of the change."""
        errors = []
        if new.get("type") != old.get("type"):
            errors.append(fields.invalid_value("type", new.get("type"), "field is immutable"))
        return [*errors, *_frozen_problems(new, old, ("data",)), *self.validate(new)]


class ServiceAccountStrategy(Strategy):
    """Service accounts: of the secrets only the names are kept."""

    def prepare_create(self, value: JsonDict, now: str) -> None:  # noqa: ARG002
        """Drop what else is said of the secrets."""
        if secrets := value.get("secrets"):
            value["secrets"] = [
                {"name": secret["name"]} if secret.get("name") else {} for secret in secrets
            ]

    def prepare_update(self, new: JsonDict, old: JsonDict, now: str) -> None:  # noqa: ARG002
        """The same."""
        self.prepare_create(new, now)
