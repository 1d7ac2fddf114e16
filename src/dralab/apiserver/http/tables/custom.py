"""Columns of custom resources: `additionalPrinterColumns` and their JSON paths.

Understands the paths that CRDs use: fields, `[0]`, `[*]`, `['name']`, and filters such as
`[?(@.type=="Ready")]`. Source: k8s.io/client-go `util/jsonpath`.
"""

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from dralab.apiserver.http.tables.ages import Elapsed, age
from dralab.apiserver.http.tables.printers import Column, Printer, name_of
from dralab.kernel.clock import from_rfc3339
from dralab.values.json_types import JsonObject
from dralab.values.remembering import remembered

Step = Callable[[Any], Iterable[Any]]
TOKEN: Final = re.compile(
    r"""\.(?P<field>(?:[^.\[\]\\]|\\.)+)
      | \[\?\(\s*@(?P<path>[^=!<>]*?)\s*(?P<test>==|!=)\s*(?P<value>"[^"]*"|'[^']*'|[^)]+?)\s*\)\]
      | \[(?P<index>-?\d+)\]
      | \[(?P<all>\*)\]
      | \[(?P<quote>["'])(?P<name>[^"']*)(?P=quote)\]""",
    re.VERBOSE,
)
NAME: Final = Column(name="Name", format="name", description="Name of the object")
AGE: Final = Column(name="Age", type="date", description="Age of the object")


def custom_printer(columns: Sequence[Mapping[str, Any]] | None) -> Printer:
    """Return the printer of a CRD version's `additionalPrinterColumns`; without any, the age."""
    if not columns:
        return Printer((NAME, AGE), lambda obj: [name_of(obj), age(obj)])
    shown = tuple(
        Column(
            name=column["name"],
            type=column.get("type", "string"),
            format=column.get("format", ""),
            description=column.get("description", ""),
            priority=column.get("priority", 0),
        )
        for column in columns
    )
    paths = [steps_of(column.get("jsonPath", "")) for column in columns]
    pairs = list(zip(shown, paths, strict=True))

    def cells(obj: JsonObject) -> Sequence[Any]:
        found = [_cell(column, _results(path, obj)) for column, path in pairs]
        return [name_of(obj), *found]

    return Printer((NAME, *shown), cells)


@remembered(1024)
def steps_of(path: str) -> tuple[Step, ...]:
    """Return the steps of a JSON path; empty if it cannot be read."""
    steps: list[Step] = []
    at = 0
    path = path.strip()
    while at < len(path):
        found = TOKEN.match(path, at)
        if found is None:
            return (lambda _: (),)
        steps.append(_step(found))
        at = found.end()
    return tuple(steps)


def _step(found: re.Match[str]) -> Step:
    if found["field"] is not None or found["name"] is not None:
        name = found["name"] if found["field"] is None else re.sub(r"\\(.)", r"\1", found["field"])
        if name == "*":
            return _everything
        return lambda value: [value[name]] if isinstance(value, dict) and name in value else ()
    if found["index"] is not None:
        number = int(found["index"])
        return lambda value: (
            [value[number]]
            if isinstance(value, list) and -len(value) <= number < len(value)
            else ()
        )
    if found["all"]:
        return _everything
    inner, wanted = steps_of(found["path"].strip()), _literal(found["value"])
    same = found["test"] == "=="

    def chosen(value: Any) -> Iterable[Any]:
        for item in value if isinstance(value, list) else ():
            results = _results(inner, item)
            if (bool(results) and results[0] == wanted) is same:
                yield item

    return chosen


def _everything(value: Any) -> Iterable[Any]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()


def _literal(text: str) -> Any:
    if text[0] in "\"'":
        return text[1:-1]
    try:
        return json.loads(text)
    except ValueError:
        return text


def _results(steps: Sequence[Step], value: Any) -> list[Any]:
    found = [value]
    for step in steps:
        found = [item for one in found for item in step(one)]
    return found


def _cell(column: Column, results: Sequence[Any]) -> Any:
    if not results or results[0] is None:
        return None
    value = results[0]
    match column.type:
        case "integer":
            return int(value) if isinstance(value, (int, float)) else None
        case "number":
            return value if isinstance(value, (int, float)) else None
        case "boolean":
            return value if isinstance(value, bool) else None
        case "date":
            return _date(value)
        case _:
            return " ".join(map(_text, results))


def _date(value: Any) -> Elapsed | str | None:
    if not isinstance(value, str):
        return None
    try:
        return Elapsed(from_rfc3339(value))
    except ValueError:
        return "<invalid>"


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
