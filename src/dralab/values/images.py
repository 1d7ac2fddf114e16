"""References to images: `[host[:port]/]path[:tag][@digest]`.

Source: the grammar in github.com/distribution/reference. Nothing is pulled here.
"""

import re
from typing import Final

from dralab.values.remembering import remembered

PART: Final = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
HOST_LABEL: Final = r"(?:[a-zA-Z0-9]|[a-zA-Z0-9][a-zA-Z0-9-]*[a-zA-Z0-9])"
HOST: Final = rf"(?:{HOST_LABEL}(?:\.{HOST_LABEL})*|\[(?:[a-fA-F0-9:]+)\])(?::[0-9]+)?"
DIGEST: Final = r"[A-Za-z][A-Za-z0-9]*(?:[-_+.][A-Za-z][A-Za-z0-9]*)*:[0-9a-fA-F]{32,}"
# Compiled with the first image.
REFERENCE: Final = (
    rf"(?P<name>(?:{HOST}/)?{PART}(?:/{PART})*)(?::(?P<tag>\w[\w.-]{{0,127}}))?"
    rf"(?:@(?P<digest>{DIGEST}))?"
)
IDENTIFIER: Final = r"[a-f0-9]{64}"
LONGEST_NAME: Final = 255


@remembered(4096)
def tag_of(image: str) -> str:
    """Return the tag of an image; empty for a digest alone and for what is not a reference.

    >>> [tag_of(image) for image in ("nginx", "a.io/b:1", "a@sha256:" + "0" * 64, "Not/One")]
    ['latest', '1', '', '']
    """
    match = re.fullmatch(REFERENCE, image, re.ASCII)
    if match is None or re.fullmatch(IDENTIFIER, image):
        return ""
    name, tag, digest = match["name"], match["tag"] or "", match["digest"]
    first, slash, rest = name.partition("/")
    is_host = bool(slash) and (
        first == "localhost" or set(first) & set(".:[") or first != first.lower()
    )
    if len(rest if is_host else name) > LONGEST_NAME:
        return ""
    return tag or ("" if digest else "latest")
