"""The columns of nodes after any changes, against a table made anew, and pods read from the wire."""

import random
from types import SimpleNamespace

import numpy as np
import pytest

from builders import pod, worker
from dralab.objects.host_ports import TakenPort, collide
from dralab.scheduling import scores
from dralab.scheduling.demands import PodDemand
from dralab.scheduling.filters import NodePorts, lacking, room
from dralab.scheduling.node_rules import NodeRules
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import pod_info, with_claimed
from dralab.scheduling.reasons import NOT_NAMED, TAINTED, Reason

MIB = 1024 * 1024
EVERY = "0.0.0.0"  # noqa: S104 - the word of the API for every address
ZONES, APPS = ("a", "b", "c"), ("x", "y")


def term(app, key="zone", **more):
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key, **more}


def some_node(chance, name):
    labels = {"zone": chance.choice(ZONES)} if chance.random() < 0.8 else {}
    effects = ("NoSchedule", "PreferNoSchedule")
    taints = [{"key": "t", "effect": chance.choice(effects)}] * (chance.random() < 0.3)
    extra = {"example.com/gpu": str(chance.randrange(4))} if chance.random() < 0.3 else {}
    made = worker(name, cpu=str(chance.randrange(1, 9)), labels=labels, taints=taints, extra=extra)
    images = [
        {"names": [f"i{n}:1"], "sizeBytes": 300 * n * MIB} for n in range(chance.randrange(4))
    ]
    made["status"]["images"] = images
    if chance.random() < 0.2:
        made["spec"]["unschedulable"] = True
    return made


def some_pod(chance, number):
    requests = {"cpu": f"{chance.randrange(20) * 100}m"} if chance.random() < 0.7 else {}
    if chance.random() < 0.3:
        requests["example.com/gpu"] = str(chance.randrange(3))
    spec = {"priority": chance.randrange(3)}
    affinity = {}
    if chance.random() < 0.4:
        required = [term(chance.choice(APPS))]
        affinity["podAntiAffinity"] = {"requiredDuringSchedulingIgnoredDuringExecution": required}
    if chance.random() < 0.4:
        wished = [{"weight": chance.randrange(1, 9), "podAffinityTerm": term(chance.choice(APPS))}]
        affinity["podAffinity"] = {"preferredDuringSchedulingIgnoredDuringExecution": wished}
    if chance.random() < 0.3:
        spec["tolerations"] = [{"key": "t", "operator": "Exists"}]
    if chance.random() < 0.3:
        spec["nodeSelector"] = {"zone": chance.choice(ZONES)}
    made = pod(f"p{number}", requests=requests, labels={"app": chance.choice(APPS)}, **spec)
    made["spec"]["affinity"] = affinity
    made["spec"]["containers"][0]["image"] = f"i{chance.randrange(3)}:1"
    if chance.random() < 0.3:
        ports = [{"hostPort": chance.randrange(80, 83), "containerPort": 80}]
        made["spec"]["containers"][0]["ports"] = ports
    made["metadata"]["uid"] = f"u{number}"
    return pod_info(made)


def said(table, probes):
    """Return all that a table says, by the names of nodes."""
    rows = table.row_of
    asked = NodeRules(table)
    found = {
        "count": table.count,
        "live": int(table.live.sum()),
        "names": [table.names[row] == name for name, row in rows.items()],
        "priorities": dict(table.priorities),
        "repelling": {key: by_name(table, held) for key, held in table.repelling.items()},
        "wishes": {key: by_name(table, held) for key, held in table.wishes.items()},
        "ports": {
            table.names[row]: dict(taken) for row, taken in table.ports_taken().items() if taken
        },
        "images": {
            image: {table.names[row]: size for row, size in held.items()}
            for image, held in table.images.items()
            if held
        },
        "pods": {name: sorted(table.pods[row]) for name, row in rows.items()},
    }
    for resource in ("cpu", "memory", "pods", "example.com/gpu", "example.com/none"):
        found["free", resource] = by_name(table, table.free(resource))
        found["offer", resource] = by_name(table, table.allocatable(resource))
    for number in (0, 1):
        found["scored", number] = by_name(table, table.scored_free()[number])
        found["scored offer", number] = by_name(table, table.scored_offer()[number])
    count, ids = table.domains("zone")
    zones = {}
    for name, row in rows.items():
        zones.setdefault(ids[row] if ids[row] >= 0 else None, set()).add(name)
    found["zones"] = (count, sorted(map(sorted, zones.values())), sorted(zones.get(None, ())))
    for number, probe in enumerate(probes):
        found["matching", number] = [
            by_name(table, table.matching(each.matcher)) for each in probe.wishes
        ]
        found["mask", number] = by_name(table, asked.mask(probe))
        found["reason", number] = {name: asked.reason(probe, row) for name, row in rows.items()}
        state = SimpleNamespace(nominees={}, table=table, node_rules=asked)
        for plugin in scores.PLUGINS:
            points = plugin.points(state, probe, table.live)
            told = None if points is None else by_name(table, points)
            found[plugin.name, number] = told
        found["room", number] = by_name(table, room(table, probe))
        ports = NodePorts().judged(SimpleNamespace(nominees={}, table=table), probe, PodDemand())
        found["ports free", number] = None if ports is None else by_name(table, ports.mask)
    return found


def by_name(table, column):
    return {name: column[row].item() for name, row in table.row_of.items() if column[row]}


@pytest.mark.parametrize("seed", range(12))
def test_a_table_that_saw_changes_says_what_one_made_anew_says(seed):
    chance = random.Random(seed)
    probes = [some_pod(chance, 1000 + number) for number in range(6)]
    table, nodes, placed = NodeTable(), {}, {}
    filters_ = NodeRules(table)
    for number in range(chance.choice((40, 200))):
        name = f"n{chance.randrange(5 if seed % 3 else 100)}"
        match chance.randrange(6):
            case 0 | 1:
                nodes[name] = some_node(chance, name)
                table.put_node(nodes[name])
            case 2:
                nodes.pop(name, None)
                table.remove_node(name)
            case 3 | 4:
                new = some_pod(chance, number)
                placed[new.uid] = (name, new)
                table.add_pod(name, new)
                table.add_pod(name, new)  # once is enough
            case 5 if placed:
                where, gone = placed.pop(chance.choice(sorted(placed)))
                assert table.remove_pod(where, gone.uid) is gone
                assert table.remove_pod(where, gone.uid) is None
        probe = chance.choice(probes)
        filters_.mask(probe)  # Answers that are kept follow the changes.
        for wish in probe.wishes:
            table.matching(wish.matcher)
        table.domains("zone")
    anew = NodeTable()
    for node in nodes.values():
        anew.put_node(node)
    for where, each in placed.values():
        anew.add_pod(where, each)
    assert said(table, probes) == said(anew, probes)
    for probe in probes:
        kept = filters_.mask(probe)
        assert by_name(table, kept) == by_name(anew, NodeRules(anew).mask(probe))


def test_a_change_tells_whether_it_may_help_a_pod():
    table = NodeTable()
    before = table.version
    assert table.put_node(worker("n", cpu="2"))
    assert not table.put_node(worker("n", cpu="2"))
    assert not table.put_node(worker("n", cpu="1"))
    assert table.put_node(worker("n", cpu="2"))
    assert table.put_node(worker("n", cpu="1", memory="9Gi"))
    assert table.put_node(worker("n", cpu="1", memory="9Gi", labels={"a": "b"}))
    tainted = worker("n", cpu="1", memory="9Gi", labels={"a": "b"}, taints=[{"key": "t"}])
    assert table.put_node(tainted)
    assert table.put_node({**tainted, "spec": {"unschedulable": True}})
    assert table.version == before + 8
    table.remove_node("no")
    assert table.version == before + 8


def test_a_pod_that_names_its_nodes_is_asked_about_them_alone():
    table = NodeTable()
    for name in ("n0", "n1", "n2"):
        table.put_node(worker(name, taints=[{"key": "t", "effect": "NoSchedule"}] * (name == "n1")))

    def asked(*names):
        terms = [
            {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [name]}]}
            for name in names
        ]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        wanted = pod_info(pod("p", affinity={"nodeAffinity": required}))
        found = NodeRules(table)
        reasons = [found.reason(wanted, row) for row in range(3)]
        return found.mask(wanted).tolist(), reasons

    elsewhere, tainted = Reason(NOT_NAMED), Reason(TAINTED, ("t", ""))
    assert asked("n0", "n1", "no") == ([True, False, False], [None, tainted, elsewhere])
    assert asked("n2") == ([False, False, True], [elsewhere, elsewhere, None])


def test_what_is_lacking_is_named():
    table = NodeTable()
    table.put_node(worker("n", cpu="1", pods="1"))
    requests = {"cpu": "2", "memory": "9Gi", "example.com/gpu": "1"}
    wanted = pod_info(pod("p", requests=requests))
    short = ["cpu", "example.com/gpu", "memory"]
    assert lacking(table, wanted, 0, frozenset()) == short
    provided = frozenset({"example.com/gpu", "cpu"})
    assert lacking(table, wanted, 0, provided) == ["cpu", "memory"]
    exact = pod_info(pod("q", requests={"cpu": "1"}))
    assert lacking(table, exact, 0, frozenset()) == []
    assert room(table, exact).tolist() == [True]
    table.add_pod("n", exact)
    assert lacking(table, exact, 0, frozenset()) == ["pods", "cpu"]
    assert room(table, pod_info(pod("r"))).tolist() == [False]


def test_devices_may_provide_what_a_node_lacks():
    table = NodeTable()
    for name, gpus in (("n0", "0"), ("n1", "2"), ("n2", "0")):
        table.put_node(worker(name, extra={"example.com/gpu": gpus}))
    wanted = pod_info(pod("p", requests={"example.com/gpu": "1"}))
    assert room(table, wanted).tolist() == [False, True, False]
    elsewhere = {"example.com/gpu": np.array([True, False, False])}
    assert room(table, wanted, elsewhere).tolist() == [True, True, False]


@pytest.mark.parametrize(
    ("mine", "other", "excluded"),
    [
        ((EVERY, "TCP", 80), (EVERY, "TCP", 80), True),
        ((EVERY, "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), (EVERY, "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.1", "TCP", 80), True),
        (("10.0.0.1", "TCP", 80), ("10.0.0.2", "TCP", 80), False),
        ((EVERY, "TCP", 80), (EVERY, "UDP", 80), False),
        ((EVERY, "TCP", 80), (EVERY, "TCP", 81), False),
    ],
)
def test_host_ports_exclude_each_other(mine, other, excluded):
    assert collide(TakenPort(*mine), TakenPort(*other)) is excluded


# --- pods read from the wire ------------------------------------------------------------------------


def test_a_pod_that_says_nothing_has_the_defaults():
    found = pod_info({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}]}})
    assert (found.priority, found.created, found.requests, found.scored) == (
        0, 0, {}, (100, 200 * MIB)
    )  # fmt: skip
    assert (found.affinity, found.anti_affinity, found.preferred_pods, found.wishes) == ((),) * 4
    assert (found.spread, found.ports, found.gates, found.claimed) == ((), frozenset(), (), ())
    assert (found.images, found.volume_claims) == ((":latest",), ())
    assert (found.node_name, found.group, found.claims) == ("", "", ())
    assert found.may_preempt
    assert not pod_info(pod("p", preemptionPolicy="Never")).may_preempt


def test_images_are_named_as_nodes_name_them():
    made = pod("p")
    images = ["x", "x:1", "registry:5000/x", "registry:5000/x:2"]
    made["spec"]["containers"] = [{"name": f"c{n}", "image": one} for n, one in enumerate(images)]
    assert pod_info(made).images == (
        "x:latest", "x:1", "registry:5000/x:latest", "registry:5000/x:2"
    )  # fmt: skip


def test_host_ports_have_an_address_and_a_protocol():
    made = pod("p")
    made["spec"]["containers"][0]["ports"] = [
        {"containerPort": 1},
        {"containerPort": 2, "hostPort": 2},
        {"containerPort": 3, "hostPort": 3, "hostIP": "10.0.0.1", "protocol": "UDP"},
    ]
    assert pod_info(made).ports == {(EVERY, "TCP", 2), ("10.0.0.1", "UDP", 3)}


def test_terms_say_whose_pods_they_mean():
    def chosen(wire, labels=None):
        required = {"requiredDuringSchedulingIgnoredDuringExecution": [term("x") | wire]}
        made = pod("p", namespace="ns", labels=labels, affinity={"podAntiAffinity": required})
        return pod_info(made, lambda chooser: ["of", str(chooser["n"])]).anti_affinity[0]

    assert chosen({}).matcher.namespaces == {"ns"}
    assert chosen({"namespaces": ["a", "b"]}).matcher.namespaces == {"a", "b"}
    assert chosen({"namespaceSelector": {}}).matcher.namespaces is None
    both = {"namespaces": ["a"], "namespaceSelector": {"n": 1}}
    assert chosen(both).matcher.namespaces == {"a", "of", "1"}
    accepts = chosen({"labelSelector": {}}).matcher.accepts
    assert accepts(pod_info(pod("q", namespace="ns")))
    assert not accepts(pod_info(pod("q", namespace="other")))
    assert not chosen({"labelSelector": None}).matcher.accepts(pod_info(pod("q", namespace="ns")))
    keys = {"labelSelector": {}, "matchLabelKeys": ["rev", "no"], "mismatchLabelKeys": ["team"]}
    accepts = chosen(keys, {"rev": "1", "team": "me"}).matcher.accepts
    assert [
        accepts(pod_info(pod("q", namespace="ns", labels=labels)))
        for labels in ({"rev": "1"}, {"rev": "2"}, {"rev": "1", "team": "me"}, {})
    ] == [True, False, False, False]


def test_weights_are_wishes_and_aversions():
    wish = {"weight": 4, "podAffinityTerm": term("x")}
    needed = "requiredDuringSchedulingIgnoredDuringExecution"
    wished = "preferredDuringSchedulingIgnoredDuringExecution"
    near, far = {needed: [term("y")], wished: [wish]}, {needed: [term("x")], wished: [wish]}
    found = pod_info(pod("p", affinity={"podAffinity": near, "podAntiAffinity": far}))
    assert [each.weight for each in found.preferred_pods] == [4, -4]
    assert [each.weight for each in found.wishes] == [4, -4, 1]
    assert [each.weight for each in found.anti_affinity] == [0]


def test_rules_of_spreading_have_defaults():
    rule = {"topologyKey": "zone", "maxSkew": 2, "labelSelector": {}}
    wires = [
        rule,
        rule | {"whenUnsatisfiable": "ScheduleAnyway", "minDomains": 3},
        rule | {"nodeAffinityPolicy": "Ignore", "nodeTaintsPolicy": "Honor"},
    ]
    found = pod_info(pod("p", topologySpreadConstraints=wires)).spread
    assert [(each.key, each.max_skew) for each in found] == [("zone", 2)] * 3
    assert [(each.hard, each.min_domains) for each in found] == [(True, 1), (False, 3), (True, 1)]
    assert [(each.honor_affinity, each.honor_taints) for each in found] == [
        (True, False), (True, False), (False, True)
    ]  # fmt: skip


def test_what_devices_take_of_the_node_counts_once_a_pod_has_one():
    entry = {"name": "c", "containers": ["main"], "mapping": []}
    waiting = pod("p", status={"nodeAllocatableResourceClaimStatuses": [entry]})
    assert pod_info(waiting).claimed == ()
    placed = pod("p", status=waiting["status"], nodeName="n")
    assert pod_info(placed).claimed == (entry,)
    assert with_claimed(pod_info(pod("p", requests={"cpu": "1"})), []).scored == (1000, 200 * MIB)
