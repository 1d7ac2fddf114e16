"""Writes a new kubeconfig, without PyYAML for a faster start."""

import base64
import json
import os
import tempfile
from pathlib import Path


def kubeconfig(
    server: str,
    *,
    user: str = "admin",
    ca: str = "",
    token: str = "",
    certificate: str = "",
    key: str = "",
    insecure: bool = False,
) -> str:
    """Return a kubeconfig with one cluster (dralab), one user, one context.

    `ca`, `certificate` and `key` are PEM texts.

    >>> print(kubeconfig("http://127.0.0.1:8080"), end="")
    apiVersion: v1
    kind: Config
    clusters:
    - name: dralab
      cluster:
        server: http://127.0.0.1:8080
    users:
    - name: admin
      user: {}
    contexts:
    - name: dralab
      context:
        cluster: dralab
        user: admin
    current-context: dralab
    """
    # JSON's texts are YAML's, too.
    name = user if user.isascii() and user.isalnum() else json.dumps(user)
    lines = ["apiVersion: v1", "kind: Config", "clusters:", "- name: dralab", "  cluster:"]
    lines.append(f"    server: {server}")
    if ca:
        lines.append(f"    certificate-authority-data: {_data(ca)}")
    if insecure:
        lines.append("    insecure-skip-tls-verify: true")
    lines += ["users:", f"- name: {name}"]
    credentials = []
    if token:
        credentials.append(f"    token: {token}")
    if certificate:
        credentials.append(f"    client-certificate-data: {_data(certificate)}")
        credentials.append(f"    client-key-data: {_data(key)}")
    lines += ["  user:", *credentials] if credentials else ["  user: {}"]
    lines += ["contexts:", "- name: dralab", "  context:", "    cluster: dralab"]
    lines += [f"    user: {name}", "current-context: dralab", ""]
    return "\n".join(lines)


def write_privately(path: Path, content: str | bytes) -> None:
    """Write a file that its owner alone can read, whole or not at all. OSError."""
    data = content.encode() if isinstance(content, str) else content
    handle, name = tempfile.mkstemp(prefix=f".{path.name}-", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(data)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def _data(pem: str) -> str:
    return base64.b64encode(pem.encode()).decode()
