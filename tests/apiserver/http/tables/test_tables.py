"""Tables: the recorded columns and cells, ages, and the columns of custom resources."""

import json
import re
from pathlib import Path

import orjson
import pytest

from dralab.api.kinds import Kinds
from dralab.apiserver.http.tables import custom_printer, printer_for, table
from dralab.apiserver.http.tables.ages import human, selector
from dralab.kernel.clock import SECOND, from_rfc3339

SHARED = Path(__file__).parents[4] / "../shared/testdata/apiserver"
CREATED = "2026-11-20T10:39:09Z"
NOW = from_rfc3339(CREATED)
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
YEAR = 365 * DAY


def cells(printer, obj, now=NOW):
    return printer.row(obj, include="None", version="v1").at(now)["cells"]


def recorded(name):
    path = SHARED / name
    if not path.exists():
        pytest.skip("the recorded tables are not beside this checkout")
    return json.loads(path.read_text())


def test_every_kind_has_the_columns_people_know():
    wanted = recorded("tables.json")["columns"]
    assert len(wanted) > 60
    for path, columns in wanted.items():
        group, _, plural = path.split("/")
        found = printer_for("" if group == "core" else group, plural)
        shown = [[c.name, c.type, c.format, c.priority] for c in found.columns]
        assert shown == [list(column) for column in columns], path


@pytest.mark.parametrize(
    ("made", "shown"), [("0000-01-01T00:00:00Z", "292y"), ("9999-12-31T23:59:59Z", "<invalid>")]
)
def test_objects_of_any_year_have_an_age_and_hide_no_others(made, shown):
    pods = [
        {"metadata": {"name": "odd", "creationTimestamp": made}, "spec": {}, "status": {}},
        {"metadata": {"name": "new", "creationTimestamp": CREATED}, "spec": {}, "status": {}},
    ]
    ages = [cells(printer_for("", "pods"), pod)[4] for pod in pods]
    assert ages == [shown, "0s"]


@pytest.mark.parametrize("number", range(17))
def test_the_row_of_a_pod_says_what_its_containers_do(number):
    row = recorded("tables.json")["podRows"][number]
    pod = {"metadata": {"name": row["cells"][0], "creationTimestamp": CREATED}}
    pod |= {key: row[key] for key in ("spec", "status") if key in row}
    if row["case"] == "being deleted":
        pod["metadata"]["deletionTimestamp"] = CREATED
        pod["spec"] = {"nodeName": "n1", "containers": [{}]}
        pod["status"] = {"phase": "Running"}
    found = cells(printer_for("", "pods"), pod)
    assert [without_ages(cell) for cell in found] == [without_ages(cell) for cell in row["cells"]]


def without_ages(cell):
    return re.sub(r"\d+[smhd](\d+[smh])?( ago|$)", "AGE", cell) if isinstance(cell, str) else cell


def test_every_row_is_as_a_real_server_made_it():
    objects = {case["case"]: case["answer"] for case in recorded("defaults.json")["cases"]}
    count = 0
    for row in recorded("tables.json")["rows"]:
        obj = objects.get(row["case"])
        if obj is None or obj.get("kind") == "Status":
            continue
        group = obj["apiVersion"].rpartition("/")[0]
        plural = row["path"].rsplit("/", 1)[-1]
        obj["metadata"]["creationTimestamp"] = CREATED
        obj["metadata"]["name"] = row["cells"][-1 if obj["kind"] == "Event" else 0]
        printer = printer_for(group, plural)
        found = [comparable(cell) for cell in cells(printer, obj)]
        assert found == [comparable(cell) for cell in row["cells"]], row["case"]
        assert [column.name for column in printer.columns] == row["columns"]
        count += 1
    assert count > 60


def comparable(cell):
    if not isinstance(cell, str):
        return cell
    cell = re.sub(r"controller-uid=.*", "controller-uid=UID", cell)
    cell = re.sub(r"10\.0\.0\.\d+|^IP$|^TIME$", "IP", cell)
    cell = re.sub(r":(\d{5}|PORT|NODEPORT)/", ":PORT/", cell)
    return re.sub(r"^\d+[smh](\d+[smh])?$|<unknown>|<invalid>", "AGE", cell)


def test_every_kind_makes_a_row_of_an_empty_object():
    kinds = [kind for kind in Kinds.standard() if "list" in kind.verbs]
    assert len(kinds) > 50
    for kind in kinds:
        obj = {"metadata": {"name": "x", "creationTimestamp": CREATED}}
        printer = printer_for(kind.group, kind.plural)
        assert len(cells(printer, obj)) == len(printer.columns), kind


@pytest.mark.parametrize(
    ("time", "text"),
    [
        (-5 * SECOND, "<invalid>"),
        (-SECOND, "0s"),
        (0, "0s"),
        (119 * SECOND, "119s"),
        (120 * SECOND, "2m"),
        (179 * SECOND, "2m59s"),
        (97 * MINUTE, "97m"),
        (3 * HOUR, "3h"),
        (3 * HOUR + 5 * MINUTE, "3h5m"),
        (47 * HOUR, "47h"),
        (2 * DAY + 4 * HOUR, "2d4h"),
        (9 * DAY + 4 * HOUR, "9d"),
        (3 * YEAR + 2 * DAY, "3y2d"),
        (9 * YEAR, "9y"),
    ],
)
def test_ages_are_coarser_the_longer_they_are(time, text):
    assert human(time) == text


def test_selectors_read_as_queries():
    found = {
        "matchLabels": {"b": "1", "a": "2"},
        "matchExpressions": [
            {"key": "c", "operator": "In", "values": ["y", "x"]},
            {"key": "d", "operator": "DoesNotExist"},
        ],
    }
    assert selector(found) == "!d,a=2,b=1,c in (x,y)"
    assert selector({}) == "<none>"


FOO = {
    "metadata": {"name": "a", "creationTimestamp": CREATED},
    "spec": {"n": 3, "ratio": 0.5, "on": True, "list": [{"x": "p"}, {"x": "q"}], "a.b": "dotted"},
    "status": {
        "conditions": [
            {"type": "Ready", "status": "False"},
            {"type": "Synced", "status": "True"},
        ]
    },
}


@pytest.mark.parametrize(
    ("path", "type_", "cell"),
    [
        (".spec.n", "integer", 3),
        (".spec.ratio", "number", 0.5),
        (".spec.on", "boolean", True),
        (".spec.list[*].x", "string", "p q"),
        (".spec.list[1].x", "string", "q"),
        (".spec.list[-1].x", "string", "q"),
        (".spec['a.b']", "string", "dotted"),
        (r".spec.a\.b", "string", "dotted"),
        ('.status.conditions[?(@.type=="Ready")].status', "string", "False"),
        (".status.conditions[?(@.type!='Ready')].status", "string", "True"),
        (".spec.list[0]", "string", '{"x":"p"}'),
        (".metadata.creationTimestamp", "date", "0s"),
        (".spec.n", "date", None),
        (".spec.none", "string", None),
        (".spec.n", "boolean", None),
        ("%%%", "string", None),
    ],
)
def test_columns_of_custom_resources_follow_their_paths(path, type_, cell):
    printer = custom_printer([{"name": "C", "type": type_, "jsonPath": path}])
    assert cells(printer, FOO) == ["a", cell]


def test_a_custom_resource_without_columns_shows_its_age():
    printer = custom_printer(None)
    assert [column.name for column in printer.columns] == ["Name", "Age"]
    assert cells(printer, FOO) == ["a", "0s"]


@pytest.mark.parametrize(
    ("include", "shown"),
    [
        ("None", None),
        (
            "Metadata",
            {
                "kind": "PartialObjectMetadata",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": FOO["metadata"],
            },
        ),
        ("Object", FOO),
    ],
)
def test_a_row_brings_as_much_of_its_object_as_was_asked_for(include, shown):
    printer = custom_printer(None)
    rows = [printer.row(FOO, include=include, version="v1")]
    found = json.loads(orjson.dumps(table(printer, rows, now=NOW, metadata={})))
    assert found["rows"][0]["object"] == shown
    later = table(printer, rows, now=NOW, metadata={}, with_columns=False)
    assert later["columnDefinitions"] is None


def test_a_row_is_made_once_and_its_ages_go_on():
    pod = {"metadata": {"name": "p", "creationTimestamp": CREATED}, "spec": {}}
    ended = {"terminated": {"finishedAt": CREATED}}
    pod["status"] = {"containerStatuses": [{"restartCount": 3, "lastState": ended}]}
    row = printer_for("", "pods").row(pod, include="None", version="v1")
    shown = [row.at(NOW + later)["cells"][3:5] for later in (0, 5 * MINUTE, 3 * DAY)]
    assert shown == [["3 (0s ago)", "0s"], ["3 (5m ago)", "5m"], ["3 (3d ago)", "3d"]]
