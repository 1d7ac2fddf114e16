"""Names of the claims that are created for pods of older generations."""

import hashlib
from collections.abc import Mapping
from typing import Any


def suffix(namespace: str, pod: str) -> str:
    """Return five letters for the claims of a pod: the same every time, others for other pods."""
    digest = hashlib.sha256(f"{namespace}/{pod}".encode()).digest()
    return "".join("bcdfghjklmnpqrstvwxz2456789"[byte % 27] for byte in digest[:5])


def evolution_claim(entry: Mapping[str, Any], pod: str, namespace: str) -> str:
    """Return the name of the claim that an entry of a dra-evolution pod stands for.

    >>> evolution_claim({"name": "gpu", "resourceClaimName": "shared"}, "p", "default")
    'shared'
    """
    named: str = entry.get("resourceClaimName") or ""
    return named or f"{pod}-{entry['name']}-{suffix(namespace, pod)}"
