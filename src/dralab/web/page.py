"""The page itself: one HTML file without external parts, and the headers that keep it safe.

The policy names its script and style by their hashes: nothing else runs or is loaded, whatever
names the objects have.
"""

import base64
import hashlib
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Final

SCRIPT: Final = re.compile(rb"<script[^>]*>(.*?)</script>", re.DOTALL)
STYLE: Final = re.compile(rb"<style[^>]*>(.*?)</style>", re.DOTALL)
# How the built page names the sources that it was built from (`ui/build.mjs`).
SOURCES: Final = re.compile(rb'<meta name="dralab-sources" content="([0-9a-f]{64})"')


@cache
def page() -> bytes:
    """Return the page."""
    return files("dralab.web").joinpath("page.html").read_bytes()


@cache
def page_headers() -> Sequence[tuple[str, str]]:
    """Return the headers of the page.

    >>> dict(page_headers())["Referrer-Policy"]
    'no-referrer'
    """
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src {_hashes(SCRIPT)}",
            f"style-src {_hashes(STYLE)}",
            "connect-src 'self'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
            "require-trusted-types-for 'script'",
            "trusted-types 'none'",
        )
    )
    return (
        ("Content-Type", "text/html; charset=utf-8"),
        ("Content-Security-Policy", policy),
        *SAFE,
    )


SAFE: Final = (
    ("Cache-Control", "no-store"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
    ("Referrer-Policy", "no-referrer"),
    ("X-Content-Type-Options", "nosniff"),
    ("X-Frame-Options", "DENY"),
)
"""Headers of the page and of everything that it asks for."""


def _hashes(part: re.Pattern[bytes]) -> str:
    found = [hashlib.sha256(text).digest() for text in part.findall(page())]
    return " ".join(f"'sha256-{base64.b64encode(each).decode()}'" for each in found) or "'none'"
