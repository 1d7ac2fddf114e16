"""The tokens that carry a list from one page to the next.

Source: k8s.io/apiserver `storage/continue.go`; clients treat them as opaque.
"""

import base64
import binascii
import json
import string
from dataclasses import dataclass
from typing import Final

import orjson

from dralab.api.status import ApiError
from dralab.values.json_syntax import go_error

VERSION = "meta.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Continuation:
    """Go on after (namespace, name), with the state as of `revision` (-1: as of now)."""

    revision: int
    namespace: str
    name: str


ALPHABET: Final = frozenset(string.ascii_letters + string.digits + "-_")


def encode(token: Continuation, within: str) -> str:
    """Return the token; `within` is the namespace of the request, empty for all."""
    start = token.name if within or not token.namespace else f"{token.namespace}/{token.name}"
    text = json.dumps(
        {"v": VERSION, "rv": token.revision, "start": f"/{start}\0"}, separators=(",", ":")
    )
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def decode(text: str, within: str, *, namespaced: bool) -> Continuation:
    """Return the content of a token; ApiError (BadRequest) if it is not one."""
    plain = text.rstrip("=")  # the padding is left out, but some clients send it
    try:
        data = base64.b64decode(plain + "=" * (-len(plain) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError) as error:
        raise _invalid(f"illegal base64 data at input byte {_wrong_byte(plain)}") from error
    try:
        found = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        raise _invalid(go_error(data)) from error
    if not isinstance(found, dict) or found.get("v") != VERSION:
        raise ApiError.bad_request(
            "invalid continue token: continue key is not valid: server does not recognize this "
            f"encoded version {found.get('v') or '' if isinstance(found, dict) else ''}"
        )
    revision, start = found.get("rv"), found.get("start")
    if not isinstance(revision, int) or not isinstance(start, str) or not start:
        raise ApiError.bad_request(
            "invalid continue token: continue key is not valid: incorrect encoded start "
            "resourceVersion (version meta.k8s.io/v1)"
        )
    key = start.removeprefix("/").removesuffix("\0")
    if within or not namespaced:
        return Continuation(revision, within, key)
    namespace, _, name = key.partition("/")
    return Continuation(revision, namespace, name)


def _wrong_byte(text: str) -> int:
    """Return where Go stops reading base64 without padding: at an invalid or incomplete part."""
    for index, character in enumerate(text):
        if character not in ALPHABET:
            return index
    return len(text) - len(text) % 4


def _invalid(why: str) -> ApiError:
    return ApiError.bad_request(f"invalid continue token: continue key is not valid: {why}")
