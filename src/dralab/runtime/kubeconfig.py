"""kubeconfig files: the server, its CA and the credentials."""

import base64
import binascii
from pathlib import Path
from typing import Any, Final

from dralab.api.yaml_documents import YamlError, single
from dralab.files import reading
from dralab.values.records import dataclass

# Fields that would change the address or the user, and are not supported: refused.
UNSUPPORTED: Final = frozenset(
    {"proxy-url", "tls-server-name", "as", "as-uid", "as-groups", "as-user-extra"}
)


class KubeconfigError(ValueError):
    """A kubeconfig that cannot be used; the message names the file and the field."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterAccess:
    """How to reach a cluster.

    `ca`, `certificate` and `key` are PEM texts; `ca` None means the machine's own authorities.
    `token_file` is where the token came from: in a pod, the kubelet replaces it before it expires.
    """

    server: str
    token: str = ""
    token_file: Path | None = None
    ca: str | None = None
    certificate: str | None = None
    key: str | None = None
    insecure: bool = False
    username: str = ""
    password: str = ""

    @property
    def is_authenticated(self) -> bool:
        """Whether the server authenticates clients: over TLS, and by a credential."""
        shown = self.token or self.certificate or self.username
        return self.server.startswith("https://") and bool(shown)

    def current_token(self) -> str:
        """Return the present token of the file; the last known one while it cannot be read."""
        if self.token_file is None:
            return self.token
        try:
            return reading.read(self.token_file).decode().strip() or self.token
        except (OSError, UnicodeDecodeError):
            return self.token


def read(path: str | Path, context: str = "") -> ClusterAccess:
    """Return the access that a kubeconfig file describes, for its current or the given context."""
    path = Path(path)
    try:
        document = single(reading.read(path))
    except OSError as error:
        raise KubeconfigError(f"{path}: cannot be read: {error.strerror or error}") from error
    except YamlError as error:
        place = f"{path}:{error.line}" if error.line else path
        raise KubeconfigError(f"{place}: {error.message}") from error
    if not isinstance(document, dict):
        raise KubeconfigError(f"{path}: not a kubeconfig: expected a mapping")
    name = context or document.get("current-context") or ""
    chosen = _entry(document, path, "contexts", "context", name) if name else {}
    clusters = document.get("clusters") or []
    if not chosen and len(clusters) == 1:
        chosen = {"cluster": clusters[0].get("name")}
    if not chosen:
        raise KubeconfigError(f"{path}: current-context is missing: name one of its contexts")
    cluster = _entry(document, path, "clusters", "cluster", chosen.get("cluster", ""))
    user_name = chosen.get("user", "")
    user = _entry(document, path, "users", "user", user_name) if user_name else {}
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("http://", "https://")):
        raise KubeconfigError(
            f"{path}: clusters[{chosen.get('cluster')}].cluster.server: {server!r} is not a URL "
            f"that starts with http:// or https://"
        )
    for kind, name, entry in (
        ("clusters", chosen.get("cluster"), cluster),
        ("users", user_name, user),
    ):
        if unknown := sorted(UNSUPPORTED & {key for key, value in entry.items() if value}):
            raise KubeconfigError(f"{path}: {kind}[{name}]: {unknown[0]} is not supported")
    if "exec" in user or "auth-provider" in user:
        raise KubeconfigError(
            f"{path}: users[{user_name}].user: credentials from a helper program are not "
            "supported: use a token or a client certificate, or run kubectl proxy and connect "
            "with --server http://127.0.0.1:8001"
        )
    token, token_file = user.get("token") or "", None
    if user.get("tokenFile"):  # it wins over a token (client-go, clientcmdapi.AuthInfo)
        token = _beside(path, user["tokenFile"]).strip()
        token_file = path.parent / user["tokenFile"]
    return ClusterAccess(
        server=server.rstrip("/"),
        token=token,
        token_file=token_file,
        ca=_pem(cluster, path, "certificate-authority"),
        certificate=_pem(user, path, "client-certificate"),
        key=_pem(user, path, "client-key"),
        insecure=bool(cluster.get("insecure-skip-tls-verify")),
        username=user.get("username") or "",
        password=user.get("password") or "",
    )


def _entry(
    document: dict[str, Any], path: Path, list_: str, field: str, name: str
) -> dict[str, Any]:
    for item in document.get(list_) or []:
        if isinstance(item, dict) and item.get("name") == name:
            found = item.get(field)
            return found if isinstance(found, dict) else {}
    known = ", ".join(str(item.get("name")) for item in document.get(list_) or []) or "none"
    raise KubeconfigError(f"{path}: {list_}: no entry {name!r}; known: {known}")


def _pem(entry: dict[str, Any], path: Path, field: str) -> str | None:
    data = entry.get(f"{field}-data")
    if data:
        try:
            return base64.b64decode(data, validate=True).decode()
        except (binascii.Error, UnicodeDecodeError) as error:
            raise KubeconfigError(f"{path}: {field}-data: not base64-encoded PEM") from error
    return _beside(path, entry[field]) if entry.get(field) else None


def _beside(path: Path, name: str) -> str:
    try:
        return reading.read(path.parent / name).decode()
    except OSError as error:
        raise KubeconfigError(f"{path}: {name}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise KubeconfigError(f"{path}: {name}: not UTF-8") from error
