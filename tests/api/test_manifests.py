"""Objects in files: everything that is wrong is told, with the place where it is written."""

import json

import pytest
import yaml

from builders import claim, counter_set, device, device_class, pool, request
from dralab.api.manifests import is_relevant, load
from dralab.api.resource.files import ResourceCheck, add_pool_problems
from dralab.api.yaml_documents import YamlError, documents
from dralab.files.sources import SourceFile

CHECK = ResourceCheck(now="2026-01-01T00:00:00Z")


def read(tmp_path, text, name="a.yaml"):
    (tmp_path / name).write_text(text)
    found = load([tmp_path / name], [CHECK])
    add_pool_problems(found)
    return found


def told(found, tmp_path):
    return [str(item).replace(f"{tmp_path}/", "") for item in found.problems]


def as_yaml(*objects):
    return "---\n".join(yaml.safe_dump(item, sort_keys=False) for item in objects)


def test_documents_of_a_file_become_objects_in_their_order(tmp_path):
    found = read(tmp_path, as_yaml(device_class("gpu"), claim("c", request("r"))))
    assert [item.title for item in found.objects] == ["DeviceClass gpu", "ResourceClaim c"]
    assert found.problems == []
    assert [item.origin.document for item in found.objects] == [1, 2]
    assert found.objects[1].origin.line > 1


def test_objects_are_defaulted_and_in_the_hub_version(tmp_path):
    old = """
    apiVersion: resource.k8s.io/v1beta1
    kind: ResourceClaim
    metadata: {name: c}
    spec: {devices: {requests: [{name: r, deviceClassName: gpu}]}}
    """
    (made,) = read(tmp_path, old).objects
    assert made.object["apiVersion"] == "resource.k8s.io/v1"
    assert made.object["spec"]["devices"]["requests"][0]["exactly"]["count"] == 1


def test_lists_are_taken_apart(tmp_path):
    classes = [device_class("a"), device_class("b")]
    (tmp_path / "l.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "List", "items": classes})
    )
    items = [{"metadata": {"name": "c"}, "spec": {}}]
    typed = {"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClassList", "items": items}
    (tmp_path / "m.yaml").write_text(as_yaml(typed))
    found = load([tmp_path], [CHECK])
    assert [item.name for item in found.objects] == ["a", "b", "c"]
    assert found.objects[1].origin.inside == "items[1]"


def test_standard_input_is_a_file(tmp_path):
    found = load(["-"], [CHECK], stdin=lambda: as_yaml(device_class("a")).encode())
    assert [item.origin.file for item in found.objects] == ["standard input"]


def test_every_error_of_every_document_is_told_with_its_line(tmp_path):
    text = """\
apiVersion: resource.k8s.io/v1
kind: ResourceSlice
metadata:
  name: s
spec:
  driver: gpu.example.com
  nodeNam: n1
  pool: {name: p, generation: one, resourceSliceCount: 1}
  devices:
  - name: d0
    capacity:
      memory: {value: 40GiB}
---
apiVersion: resource.k8s.io/v1
kind: ResourceClaim
metadata: {name: c}
spec:
  devices:
    requests:
    - name: r
      exactly:
        deviceClassName: gpu
        count: -1
    constraints:
    - requests: [x]
      matchAttribute: model
---
kind: Pod
"""
    assert told(read(tmp_path, text), tmp_path) == [
        "a.yaml:7: document 1: ResourceSlice s: spec.nodeNam: Forbidden: unknown field, "
        'did you mean "nodeName"?',
        'a.yaml:8: document 1: ResourceSlice s: spec.pool.generation: Invalid value: "one": '
        "must be an integer",
        "a.yaml:12: document 1: ResourceSlice s: spec.devices[0].capacity[memory].value: "
        'Invalid value: "40GiB": must be a quantity, such as 4, 500m or 40Gi',
        "a.yaml:23: document 2: ResourceClaim c: spec.devices.requests[0].exactly.count: "
        "Invalid value: -1: must be greater than zero",
        "a.yaml:25: document 2: ResourceClaim c: spec.devices.constraints[0].requests[0]: "
        'Invalid value: "x": must be the name of a request in the claim or the name of a request '
        "and a subrequest separated by '/'",
        "a.yaml:26: document 2: ResourceClaim c: spec.devices.constraints[0].matchAttribute: "
        'Invalid value: "model": a fully qualified name must be a domain and a name separated by '
        "a slash",
        "a.yaml:28: document 3: Pod: apiVersion: Required value: such as resource.k8s.io/v1",
        "a.yaml:28: document 3: Pod: metadata: Required value: a mapping with a name",
    ]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a: b: c\n", "a.yaml:1: document 1: is not YAML: mapping values are not allowed in this context"),
        ("- 1\n", "a.yaml:1: document 1: is not an object: expected a mapping with a kind, found [1]"),
        ("a: *b\n", "a.yaml:1: document 1: refers to an anchor that does not exist: *b"),
        ("a: !!python/name:x 1\n", "a.yaml:1: document 1: has an unsupported tag: tag:yaml.org,2002:python/name:x"),
        ("[" * 300, "a.yaml:1: document 1: is nested more than 200 levels deep"),
        (
            "apiVersion: resource.k8s.io/v2\nkind: DeviceClass\nmetadata: {name: a}",
            'a.yaml:1: document 1: DeviceClass a: apiVersion: Invalid value: "resource.k8s.io/v2": DeviceClass has the versions v1, v1beta2, v1beta1',
        ),
        (
            "apiVersion: resource.k8s.io/v1\nkind: DeviceClas\nmetadata: {name: a}",
            'a.yaml:2: document 1: DeviceClas a: kind: Invalid value: "DeviceClas": resource.k8s.io has the kinds ResourceSlice, DeviceClass, ResourceClaim, ResourceClaimTemplate, DeviceTaintRule, ResourcePoolStatusRequest',
        ),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_one_clear_line(tmp_path, text, expected):
    assert told(read(tmp_path, text), tmp_path) == [expected]


def test_a_key_given_twice_is_told(tmp_path):
    text = "apiVersion: v1\nkind: Pod\nkind: Node\nmetadata:\n  name: a\n  labels: [{x: 1, x: 2}]\n"
    assert told(read(tmp_path, text), tmp_path) == [
        "a.yaml:3: document 1: kind: the key is given twice",
        "a.yaml:6: document 1: metadata.labels[0].x: the key is given twice",
    ]


def test_missing_files_and_empty_directories_are_told(tmp_path):
    (tmp_path / "empty").mkdir()
    found = load([tmp_path / "none.yaml", tmp_path / "empty"])
    assert told(found, tmp_path) == [
        "none.yaml: cannot be read: No such file or directory",
        "empty: cannot be read: contains no file that ends with .yaml, .yml, .json, .tar, .gz, .tgz",
    ]


def test_large_input_is_refused(tmp_path):
    (tmp_path / "a.yaml").write_text("#" * 100)
    found = load([tmp_path / "a.yaml"], max_bytes=10)
    assert told(found, tmp_path) == [
        "a.yaml: cannot be read: the input is larger than 10 bytes: name only the files and "
        "folders that matter"
    ]


def test_how_far_it_is_is_reported_for_each_object(tmp_path):
    (tmp_path / "a.yaml").write_text("kind: A\n---\nkind: B\n")
    (tmp_path / "b.yaml").write_text("kind: C\n")
    seen = []
    load([tmp_path], progress=lambda files, objects: seen.append((files, objects)))
    assert seen == [(1, 0), (1, 1), (1, 2), (2, 2), (2, 3)]


def test_the_rest_is_read_after_a_bad_json_file(tmp_path):
    (tmp_path / "a.json").write_text('{"kind": ')
    (tmp_path / "b.yaml").write_text(as_yaml(device_class("b")))
    found = load([tmp_path], [CHECK])
    assert [item.name for item in found.objects] == ["b"]
    assert told(found, tmp_path)[0].startswith("a.json:1: document 1: is not JSON: ")


def test_a_device_twice_in_a_pool_is_told(tmp_path):
    first = pool("p", device("d"))[0]
    second = pool("p", device("d"))[0]
    second["metadata"]["name"] = "q"
    for item in (first, second):
        item["spec"]["pool"]["resourceSliceCount"] = 2
    assert told(read(tmp_path, as_yaml(first, second)), tmp_path) == [
        'a.yaml:27: document 2: ResourceSlice q: spec.devices[0].name: Duplicate value: "d": '
        "the pool has this device in ResourceSlice p too"
    ]


def test_an_older_generation_of_a_pool_may_have_the_device_too(tmp_path):
    old, new = pool("p", device("d"))[0], pool("p", device("d"), generation=2)[0]
    old["metadata"]["name"] = "old"
    assert told(read(tmp_path, as_yaml(old, new)), tmp_path) == []


def test_counters_that_are_not_there_are_told(tmp_path):
    drawing = device("d", consumes={"a": {"m": 1, "x": 1}, "b": {"m": 1}})
    slices = pool("p", drawing, counters=[counter_set("a", m=1)])
    assert told(read(tmp_path, as_yaml(*slices)), tmp_path) == [
        "a.yaml:17: document 1: ResourceSlice p: spec.devices[0].consumesCounters[0].counters: "
        'Not found: "x": the counter set has m',
        "a.yaml:21: document 1: ResourceSlice p: spec.devices[0].consumesCounters[1].counterSet: "
        'Not found: "b": the pool has the counter sets a',
    ]


def test_an_object_twice_is_told(tmp_path):
    (text,) = told(read(tmp_path, as_yaml(device_class("a"), device_class("a"))), tmp_path)
    assert text == (
        'a.yaml:10: document 2: DeviceClass a: metadata.name: Duplicate value: "a": '
        "the same object is in a.yaml:1: document 1"
    )


def test_aliases_share_but_do_not_explode():
    text = "a: &a {x: 1}\nb: *a\nc:\n  <<: *a\n  y: 2\n"
    (found,) = documents(text)
    assert found.value == {"a": {"x": 1}, "b": {"x": 1}, "c": {"x": 1, "y": 2}}
    bomb = "a0: &a0 [1, 1, 1, 1, 1, 1, 1, 1]\n" + "".join(
        f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 8)}]\n" for i in range(1, 12)
    )
    with pytest.raises(YamlError, match="expand to more than"):
        list(documents(bomb))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2020-01-01", "2020-01-01"), ("12:30:45", "12:30:45"), ("1_000", "1_000"),
        ("0x10", 16), ("010", 8), ("0o10", 8), ("1e3", 1000.0), ("'1'", "1"), ('"yes"', "yes"),
        ("on", True), ("No", False), ("null", None), ("v1.2", "v1.2"), ("!!str 1", "1"),
        (".5", 0.5), ("-3", -3), ("+3", 3), ("1.2.3", "1.2.3"), ("-", None),
    ],
)  # fmt: skip
def test_scalars_mean_what_they_mean_to_kubernetes(text, expected):
    if text == "-":
        expected = [None]
    (found,) = documents(f"{text}\n")
    assert found.value == expected
    assert type(found.value) is type(expected)


@pytest.mark.parametrize(
    ("content", "relevant"),
    [
        (b"kind: PodList\nitems: []", True),
        (b'{"kind": "ResourceSlice"}', True),
        (b"kind: ResorceClaim\nmetadata: {name: c}\n", True),
        (b"kind: Secret\nmetadata: {uid: u, creationTimestamp: t}\n", False),
        (b"kind: List\nitems:\n- metadata: {uid: u, creationTimestamp: t}\n", True),
        (b"alerts: []", False),
    ],
)
def test_of_what_is_gathered_only_what_may_matter_is_parsed(content, relevant):
    assert is_relevant(SourceFile("f", content, gathered=True)) is relevant
    assert is_relevant(SourceFile("f", content))
