"""The types of JSON objects."""

from collections.abc import Mapping
from typing import Any

JsonObject = Mapping[str, Any]
"""A JSON object that is only read."""

JsonDict = dict[str, Any]
"""A JSON object that its holder may change: read from the wire, or made here."""
