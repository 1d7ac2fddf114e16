"""What the methods of `scenario.fields.Fields` accept, as JSON schemas: one word for each."""

from typing import Final

from dralab.kernel.durations import UNITS
from dralab.values.json_schema import JsonSchema, any_of

_UNIT: Final = "|".join(sorted(UNITS, key=lambda unit: (-len(unit), unit)))

# `Fields.text`: numbers are texts, too.
LABEL: Final[JsonSchema] = {"type": ["string", "number"]}
# `Fields.duration`.
DURATION: Final[JsonSchema] = any_of(
    {"type": "number", "minimum": 0},
    {"type": "string", "pattern": rf"^([0-9]+(\.[0-9]+)?({_UNIT}))+$"},
)
# `Fields.quantity`: `values.quantity` has the grammar; negative ones are refused.
QUANTITY: Final[JsonSchema] = any_of(
    {"type": "number", "minimum": 0},
    {
        "type": "string",
        "pattern": r"^\+?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$",
    },
)
# `Fields.labels`.
LABELS: Final[JsonSchema] = {"type": "object", "additionalProperties": LABEL}
