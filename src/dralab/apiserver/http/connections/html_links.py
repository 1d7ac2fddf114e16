"""Links of a page that is shown below another path: absolute ones get that path as a prefix.

Source of the attributes: k8s.io/apimachinery `pkg/util/proxy` (transport.go, atomsToAttrs).
"""

import re
from typing import Final

TAGS: Final = (
    "a|applet|area|audio|base|blockquote|body|button|command|del|embed|form|frame|head|html|"
    "iframe|img|input|ins|link|object|q|script|source|video"
)
NAMES: Final = (
    "action|background|cite|classid|codebase|data|formaction|href|icon|longdesc|manifest|poster|"
    "profile|src|usemap"
)
TAG: Final = re.compile(rf"<(?:{TAGS})\b[^>]*>".encode(), re.IGNORECASE)
# Two slashes begin another host.
LINK: Final = re.compile(
    rf"""(\s(?:{NAMES})\s*=\s*["']?)(/(?!/)[^\s"'>]*)""".encode(), re.IGNORECASE
)


def with_prefix(page: bytes, prefix: str) -> bytes:
    """Return an HTML page whose absolute paths lead below a prefix.

    >>> with_prefix(b"<a href='/x'>/y</a> <a href=z> <img src=/p.png>", "/pods/w/proxy")
    b"<a href='/pods/w/proxy/x'>/y</a> <a href=z> <img src=/pods/w/proxy/p.png>"
    """
    start = prefix.encode()

    def moved(link: re.Match[bytes]) -> bytes:
        path = link[2]
        return link[0] if path.startswith(start) else link[1] + start + path

    return TAG.sub(lambda tag: LINK.sub(moved, tag[0]), page)
