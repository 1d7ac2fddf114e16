"""Recorded answers of a real server, without what differs between any two servers."""

import re

UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)")
REVISION = re.compile(r'((?<="resourceVersion":")|(?<=in record \())\d+')


def comparable(value, name=""):
    """Return a value without what differs between any two servers."""
    if isinstance(value, dict):
        return {part: comparable(item, part) for part, item in value.items()}
    if isinstance(value, list):
        return [comparable(item) for item in value]
    if name == "resourceVersion":
        return "RV"
    if isinstance(value, str):
        return REVISION.sub("N", UID.sub("UID", TIME.sub("TIME", value)))
    return value
