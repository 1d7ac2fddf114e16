"""Objects of every generation with something odd in them: told by their field, never a traceback."""

import copy
import http.client
import json
import random
import re
from contextlib import closing
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from dralab.cli._older import reason_of
from dralab.cluster import Cluster, Options
from dralab.prototypes.classic import kinds as classic
from dralab.prototypes.classic import structured
from dralab.prototypes.evolution import kinds as evolution
from dralab.prototypes.generations import GENERATIONS
from dralab.prototypes.k8srm import kinds as k8srm
from dralab.prototypes.k8srm.early import checking, model, scheduling
from dralab.prototypes.k8srm.expressions import K8srmExpressions
from dralab.prototypes.k8srm.reading import attributes
from dralab.prototypes.placement import PlacedPod
from prototypes import samples

FEW, MANY = 150, 4_000
GUIDE = Path(__file__).parents[2] / "docs/guides/write-a-generation.md"
ODD = [
    None, True, False, 0, -1, 1.5, 1e308, 2**63, -(2**70), 99_999_999, "", "x", "é" * 300, "a" * 70_000, "..", "-",
    [], [None], [[]], {}, {"": ""}, {"a": None}, "1Gi", "-1", "9e99", {"a": {"b": {}}}, ["x", 1, {}], ["x", "x"],
    "device.n >", "true", "1.2", "In", "v1", "default", "\U0001f600", [{"name": "a"}, {"name": "a"}], [{"name": None}],
]  # fmt: skip
# Below these anything may be written, or the names are the user's own.
OPEN = frozenset(
    {
        "labels", "annotations", "requests", "limits", "data", "parameters", "deviceInfo", "config", "attributes",
        "capacity", "sharedResourcesConsumed", "matchLabels", "allocatable", "vendorParameters", "allocatedClaims",
        "preparedDevices", "resources", "status",
    }
)  # fmt: skip


def kinds_of(described):
    return {each["kind"] for each in described}


def scene(name):
    """The generation and valid objects of it, with all its kinds."""
    if name == "own":
        text = GUIDE.read_text()
        space = {}
        [source] = re.findall(r"^```python\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        exec(source, space)  # noqa: S102 - the guide's own code
        [kind] = [
            each for each in space.values()
            if isinstance(each, type) and each.__name__ != "OwnGeneration" and issubclass(each, space["OwnGeneration"])
        ]  # fmt: skip
        [objects] = re.findall(r"^```yaml\n(.*?)^```", text, re.MULTILINE | re.DOTALL)
        return kind(), samples.objects(objects, kind.api_version)
    generation = GENERATIONS[name]
    objects = samples.objects(getattr(samples, name.upper()), generation.api_version)
    for item in objects:
        item["apiVersion"] = VERSIONS.get(item["apiVersion"], item["apiVersion"])
    return generation, objects


def mutated(value, rng):
    """An object with one odd thing, and the name of a field that nobody knows, if it has one."""
    value = copy.deepcopy(value)
    places = list(_places(value))
    holder, key, path = rng.choice(places)
    way = rng.random()
    if way < 0.4:
        holder[key] = copy.deepcopy(rng.choice(ODD))
    elif way < 0.5:
        other, name, _ = rng.choice(places)
        holder[key] = copy.deepcopy(other[name])
    elif way < 0.6:
        del holder[key]
    elif way < 0.7 and isinstance(holder, list):
        holder.append(copy.deepcopy(holder[key]))
    elif isinstance(holder, dict) and not OPEN & set(path[:-1]):
        unknown = rng.choice([f"{key}x", f"{key}{key}", "unknownField"])
        holder[unknown] = holder.pop(key) if rng.random() < 0.5 else copy.deepcopy(rng.choice(ODD))
        return value, unknown
    return value, ""


def _places(value, path=()):
    parts = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in list(parts):
        yield value, key, (*path, key)
        if isinstance(item, (dict, list)):
            yield from _places(item, (*path, key))


def check_reading(name, count, seed):
    """Read, place and explain scenes of which one object was changed."""
    generation, objects = scene(name)
    for number in range(count):
        rng = random.Random(f"{name}/{seed}/{number}")
        index = rng.randrange(len(objects))
        changed, unknown = mutated(objects[index], rng)
        try:
            reports = list(generation.read_all([*objects[:index], changed, *objects[index + 1 :]]))
            report = reports[index]
            told = " ".join(str(finding) for finding in report.findings)
            assert not unknown or unknown in told or report.state == "invalid", told
            good = [each.document for each in reports if each.state != "invalid"]
            place_all(generation, good, [each for each in reports if each.state == "invalid"])
        except Exception as error:
            raise AssertionError(f"{name}/{seed}/{number}: {json.dumps(changed)[:2000]}") from error


def place_all(generation, objects, refused):
    cluster = generation.cluster(objects, refused)
    for pod in cluster.pods():
        placed = cluster.place(pod)
        if isinstance(placed, PlacedPod):
            cluster.apply(placed)
        else:
            assert placed.reason or reason_of(cluster, placed).text


def check_early(count, seed):
    files = samples.early()
    for number in range(count):
        rng = random.Random(f"early/{seed}/{number}")
        which = rng.randrange(2)
        changed, unknown = mutated(files[which], rng)
        nodes, pod = (changed, files[1]) if which == 0 else (files[0], changed)
        nodes, pod = copy.deepcopy(nodes), copy.deepcopy(pod)
        try:
            found = [*checking.nodes_problems(nodes), *checking.pod_problems(pod)]
            assert not unknown or found
            if not found:
                scheduling.schedule(model.read_nodes(nodes), model.read_pod(pod), meets)
        except Exception as error:
            raise AssertionError(f"early/{seed}/{number}: {json.dumps(changed)[:2000]}") from error


def meets(text, values):
    items = [{"name": name, **value} for name, value in values.items()]
    return K8srmExpressions().get(text).value(attributes(items))


# --- a server ---------------------------------------------------------------------------------

PROFILES = {"k8srm": ("v1", "k8srm"), "evolution": ("evolution",), "classic": ("v1", "classic"), "v1": ("v1",)}  # fmt: skip
VERSIONS = {"STATE": f"{classic.STATE_GROUP}/{classic.DRIVER_VERSION}", "DRIVER": f"{classic.DRIVER}/{classic.DRIVER_VERSION}"}  # fmt: skip


def served(name):
    """The objects of a scene with the paths where a server takes them."""
    described = {"k8srm": k8srm.KINDS, "evolution": evolution.KINDS, "v1": ()}.get(name)
    if described is None:
        described = (*classic.RESOURCE_KINDS, *structured.KINDS, classic.STATE, *classic.DRIVER_KINDS)  # fmt: skip
    plurals = {each["kind"]: (each["plural"], each["namespaced"]) for each in described}
    plurals |= {
        kind: plurals.get(kind, place)
        for kind, place in {
            "Pod": ("pods", True), "Node": ("nodes", False), "ConfigMap": ("configmaps", True),
            "ResourceSlice": ("resourceslices", False), "DeviceClass": ("deviceclasses", False),
            "ResourceClaim": ("resourceclaims", True), "ResourceClaimTemplate": ("resourceclaimtemplates", True),
        }.items()
    }  # fmt: skip
    for item in scene(name)[1]:
        plural, namespaced = plurals[item["kind"]]
        where = "/namespaces/default" if namespaced else ""
        root = "apis" if "/" in item["apiVersion"] else "api"
        yield f"/{root}/{item['apiVersion']}{where}/{plural}", item


def missing(sent, stored, path=""):
    """The fields of what was sent that are not in what was stored."""
    if isinstance(sent, dict) and isinstance(stored, dict):
        for key, item in sent.items():
            if key in stored:
                yield from missing(item, stored[key], f"{path}.{key}")
            elif item is not None and item not in ({}, [], "", 0, False):
                yield f"{path}.{key}"
    elif isinstance(sent, list) and isinstance(stored, list):
        for index, item in enumerate(sent[: len(stored)]):
            yield from missing(item, stored[index], f"{path}[{index}]")


def check_serving(name, count, seed):
    """Send changed objects to a server: each is stored whole, or refused, or a warning says what is lost."""
    with Cluster(Options(profiles=PROFILES[name])) as cluster, connected(cluster) as connection:
        objects = list(served(name))
        for path, item in objects:
            status, body, _ = send(connection, f"{path}?dryRun=All", item)
            assert status == 201, (path, body)
        for number in range(count):
            rng = random.Random(f"{name}/{seed}/{number}")
            path, item = rng.choice(objects)
            changed, unknown = mutated(item, rng)
            mode = rng.choice(["Strict", "Warn"])
            where = f"{path}?dryRun=All&fieldValidation={mode}"
            status, body, warnings = send(connection, where, changed)
            said = (
                f"{name}/{seed}/{number}: {status} {body} {warnings} {json.dumps(changed)[:2000]}"
            )
            assert status < 500, said
            if status >= 400:
                assert body["message"], said
                continue
            if unknown:
                assert mode == "Warn", said
                assert unknown in warnings, said
            lost = [
                each
                for each in missing(changed, body)
                if not each.startswith((".status", ".metadata"))
            ]
            assert not lost or warnings, f"{lost} {said}"


def connected(cluster):
    access = urlsplit(cluster.url)
    return closing(http.client.HTTPConnection(access.hostname, access.port, timeout=30))


def send(connection, path, body):
    headers = {"Content-Type": "application/json"}
    connection.request("POST", path, json.dumps(body), headers)
    answer = connection.getresponse()
    return answer.status, json.loads(answer.read()), answer.headers.get("Warning", "")


NAMES = ("k8srm", "evolution", "classic", "v1", "own")


def test_there_is_a_sample_of_every_kind():
    for name, described in {"K8SRM": k8srm.KINDS, "EVOLUTION": evolution.KINDS}.items():
        kinds = {item["kind"] for item in samples.objects(getattr(samples, name), "x")}
        assert kinds_of(described) <= kinds
    every = {
        *kinds_of(classic.RESOURCE_KINDS),
        *kinds_of(classic.DRIVER_KINDS),
        classic.STATE["kind"],
    }
    assert every <= {item["kind"] for item in samples.objects(samples.CLASSIC, "x")}


@pytest.mark.parametrize("name", NAMES)
def test_the_samples_are_valid_and_their_pods_placed(name):
    generation, objects = scene(name)
    reports = generation.read_all(objects)
    assert [str(f) for r in reports for f in r.findings if f.level == "invalid"] == []
    place_all(generation, [report.document for report in reports], ())


@pytest.mark.parametrize("name", NAMES)
def test_an_odd_object_is_told_by_its_field_and_the_others_are_placed(name):
    check_reading(name, FEW, 0)


def test_an_odd_file_of_the_first_stages_is_told_by_its_field():
    assert [
        *checking.nodes_problems(samples.early()[0]),
        *checking.pod_problems(samples.early()[1]),
    ] == []
    check_early(FEW, 0)


@pytest.mark.thorough
@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_server_stores_an_odd_object_whole_or_says_what_is_wrong(name):
    check_serving(name, FEW, 0)


@pytest.mark.conformance
@pytest.mark.parametrize("name", [*NAMES, "early"])
def test_thousands_of_odd_objects_are_told_by_their_field(name):
    check_early(MANY, 1) if name == "early" else check_reading(name, MANY, 1)


@pytest.mark.conformance
@pytest.mark.parametrize("name", sorted(PROFILES))
def test_a_server_takes_thousands_of_odd_objects(name):
    check_serving(name, MANY, 1)
