"""The JSON schema of case files of device selectors: what `conformance.run_cases` reads."""

from typing import Any, Final

from dralab.values.json_schema import FLAG, TEXT, JsonSchema, about, document, listing, whole

_PROPERTIES: Final[dict[str, Any]] = {
    "name": TEXT,
    "expression": about("The selector: CEL over `device`.", TEXT),
    "driver": about("Of the device.", TEXT),
    "attributes": about("As in a ResourceSlice: {model: {string: A100}}.", {"type": "object"}),
    "capacity": about("As in a ResourceSlice: {memory: {value: 80Gi}}.", {"type": "object"}),
    "allowMultipleAllocations": FLAG,
    "enableConsumableCapacity": FLAG,
    "enableListTypeAttributes": about(
        "Default: the case is run with both.", {"type": ["boolean", "null"]}
    ),
    "newExpressions": about("Checked as when it is written, not as when it is stored.", FLAG),
    "expectMatch": FLAG,
    "expectCost": about("The estimated cost.", whole()),
    "expectCompileErrorSubstring": TEXT,
    "expectMatchErrorSubstring": TEXT,
    "upstream": about("What upstream's code gave.", listing({"type": "object"})),
}


def schema() -> JsonSchema:
    """Return the JSON schema of case files."""
    case = {"type": "object", "required": ["name", "expression"], "properties": _PROPERTIES}
    return document(
        "Cases of dralab conformance cel",
        "Selectors, devices and what is expected: `dralab conformance cel FILE`.",
        listing(case),
    )
