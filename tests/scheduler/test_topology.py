from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from builders import pod, worker
from dralab.runtime.resources import NODES, PODS
from dralab.scheduling import topology
from dralab.scheduling.node_rules import NodeRules
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import pod_info

ZONE = "topology.kubernetes.io/zone"


def zoned(name, zone):
    return worker(name, labels={ZONE: zone})


def term(app, key=ZONE):
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def near(app, key=ZONE):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term(app, key)]}
    return {"podAffinity": required}


def far(app, key=ZONE):
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term(app, key)]}
    return {"podAntiAffinity": required}


def test_a_pod_goes_to_the_zone_of_its_friends(lab):
    lab.server.add(NODES, zoned("a1", "a"), zoned("b1", "b"), zoned("b2", "b"))
    lab.start()
    lab.add(PODS, pod("db", labels={"app": "db"}, nodeSelector={"kubernetes.io/hostname": "b1"}))
    lab.add(PODS, pod("web", affinity=near("db")), pod("lost", affinity=near("nobody")))
    assert lab.node_of("web") in {"b1", "b2"}
    assert lab.why("lost").startswith(
        "0/3 nodes are available: 3 node(s) didn't match pod affinity rules."
    )


def test_who_waits_for_a_friend_hears_of_its_coming(lab):
    lab.server.add(NODES, zoned("a1", "a"), zoned("b1", "b"))
    lab.start()
    lab.add(PODS, pod("web", affinity=near("db")), pod("cron", affinity=near("later")))
    assert lab.node_of("web") is None
    lab.add(PODS, pod("db", labels={"app": "db"}, nodeSelector={"kubernetes.io/hostname": "b1"}))
    lab.wait(2)
    assert lab.node_of("web") == "b1"
    lab.server.patch(PODS, "db", {"metadata": {"labels": {"app": "later"}}}, "default")
    lab.engine.settle()
    lab.wait(2)
    assert lab.node_of("cron") == "b1"


def test_the_first_of_a_group_that_wants_to_be_together_may_go_anywhere(lab):
    lab.server.add(NODES, zoned("a1", "a"), zoned("b1", "b"))
    lab.start()
    lab.add(PODS, *(pod(f"p{i}", labels={"app": "x"}, affinity=near("x")) for i in range(3)))
    assert len({lab.node_of(f"p{i}") for i in range(3)}) == 1


def test_pods_that_repel_each_other_take_one_zone_each(lab):
    lab.server.add(NODES, zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"))
    lab.start()
    lab.add(PODS, *(pod(f"p{i}", labels={"app": "x"}, affinity=far("x")) for i in range(3)))
    zones = Counter((lab.node_of(f"p{i}") or "-")[0] for i in range(3))
    assert zones == {"a": 1, "b": 1, "-": 1}
    assert "didn't match pod anti-affinity rules" in lab.why("p2")


def test_a_pod_that_is_there_keeps_others_away(lab):
    lab.server.add(NODES, zoned("a1", "a"))
    lab.start()
    lab.add(PODS, pod("hermit", affinity=far("web")))
    lab.add(PODS, pod("web", labels={"app": "web"}))
    assert "didn't satisfy existing pods anti-affinity rules" in lab.why("web")
    lab.server.delete(PODS, "hermit", "default", options={"gracePeriodSeconds": 0})
    lab.wait(2)
    assert lab.node_of("web") == "a1"


def test_a_namespace_selector_widens_a_term(lab):
    lab.server.add(NODES, zoned("a1", "a"), zoned("b1", "b"))
    from dralab.runtime.resources import NAMESPACES

    lab.server.add(NAMESPACES, {"metadata": {"name": "team", "labels": {"t": "1"}}})
    lab.start()
    there = pod(
        "db",
        labels={"app": "db"},
        namespace="team",
        nodeSelector={"kubernetes.io/hostname": "b1"},
    )
    lab.add(PODS, there)
    wide = near("db")
    wide["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"][0][
        "namespaceSelector"
    ] = {"matchLabels": {"t": "1"}}
    lab.add(PODS, pod("narrow", affinity=near("db")), pod("wide", affinity=wide))
    assert (lab.node_of("narrow"), lab.node_of("wide")) == (None, "b1")


def rule(skew=1, **more):
    return {
        "maxSkew": skew,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "x"}},
        **more,
    }


def test_hard_spread_keeps_zones_even(lab):
    lab.server.add(NODES, zoned("a1", "a"), zoned("a2", "a"), zoned("b1", "b"), worker("bare"))
    lab.start()
    pods = [pod(f"p{i}", labels={"app": "x"}, topologySpreadConstraints=[rule()]) for i in range(6)]
    lab.add(PODS, *pods)
    assert Counter(lab.node_of(f"p{i}")[0] for i in range(6)) == {"a": 3, "b": 3}


def test_a_zone_without_room_stops_a_hard_spread(lab):
    lab.server.add(NODES, zoned("a1", "a"), worker("b1", pods="0", labels={ZONE: "b"}))
    lab.start()
    lab.add(
        PODS,
        *(pod(f"p{i}", labels={"app": "x"}, topologySpreadConstraints=[rule()]) for i in range(2)),
    )
    assert lab.node_of("p0") == "a1"
    assert lab.why("p1").startswith(
        "0/2 nodes are available: 1 Too many pods, "
        "1 node(s) didn't match pod topology spread constraints."
    )


def test_too_few_domains_count_as_an_empty_one(lab):
    lab.server.add(NODES, zoned("a1", "a"))
    lab.start()
    constraints = [rule(minDomains=2)]
    lab.add(
        PODS,
        *(
            pod(f"p{i}", labels={"app": "x"}, topologySpreadConstraints=constraints)
            for i in range(2)
        ),
    )
    assert (lab.node_of("p0"), lab.node_of("p1")) == ("a1", None)


def wish(side, app, weight=100):
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    entry = {"weight": weight, "podAffinityTerm": term}
    return {side: {"preferredDuringSchedulingIgnoredDuringExecution": [entry]}}


@pytest.mark.parametrize(
    ("of_the_first", "zone"),
    [
        (wish("podAffinity", "x"), "a"),
        (near("x"), "a"),
        (wish("podAntiAffinity", "x"), "b"),
        (wish("podAffinity", "y"), "b"),
        ({}, "b"),
    ],
)
def test_a_pod_goes_where_pods_that_are_there_wish_it_to_be(lab, of_the_first, zone):
    lab.server.add(NODES, zoned("a1", "a"))
    lab.start()
    # Big enough that emptiness alone would send the next one elsewhere.
    first = pod("first", labels={"app": "x"}, affinity=of_the_first, requests={"cpu": "1"})
    lab.add(PODS, first)
    lab.add(NODES, zoned("b1", "b"))
    lab.add(PODS, pod("next", labels={"app": "x"}))
    assert lab.node_of("next") == f"{zone}1"
    lab.server.delete(PODS, "first", "default", options={"gracePeriodSeconds": 0})
    lab.wait(1)
    assert not lab.scheduler.state.table.wishes


def test_soft_spread_evens_out_without_forbidding(lab):
    lab.server.add(NODES, zoned("a1", "a"), zoned("b1", "b"))
    lab.start()
    constraints = [rule() | {"whenUnsatisfiable": "ScheduleAnyway"}]
    lab.add(
        PODS,
        *(
            pod(f"p{i}", labels={"app": "x"}, topologySpreadConstraints=constraints)
            for i in range(4)
        ),
    )
    assert Counter(lab.node_of(f"p{i}") for i in range(4)) == {"a1": 2, "b1": 2}


@settings(deadline=None)
@given(
    st.lists(st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=5),
    st.lists(st.tuples(st.integers(0, 4), st.sampled_from("xy"), st.booleans()), max_size=8),
    st.sampled_from("xy"),
    st.integers(1, 2),
)
def test_columns_say_what_a_loop_over_nodes_and_pods_says(zones, there, app, skew):
    table = NodeTable()
    filters = NodeRules(table)
    nodes = {}
    for number, zone in enumerate(zones):
        name = f"n{number}"
        nodes[name] = zone
        table.put_node(worker(name, labels={ZONE: zone} if zone else {}))
    placed = []
    for number, (where, other, repels) in enumerate(there):
        name = f"n{where % len(zones)}"
        made = pod(f"p{number}", labels={"app": other}, affinity=far("x") if repels else {})
        made["metadata"]["uid"] = f"u{number}"
        table.add_pod(name, pod_info(made))
        placed.append((nodes[name], other, repels))
    asked = pod(
        "new",
        labels={"app": app},
        affinity=near("y") | far("x"),
        topologySpreadConstraints=[rule(skew)],
    )
    info = pod_info(asked)
    found = [*topology.spread_rules(table, filters, info), *topology.affinity_rules(table, info)]
    allowed = {name: all(bool(mask[table.row_of[name]]) for _, mask in found) for name in nodes}
    count = Counter(zone for zone, other, _ in placed if other == "x" and zone)
    present = {zone for zone in zones if zone}
    for name, zone in nodes.items():
        friends = [z for z, other, _ in placed if other == "y" and z]
        by_friends = zone in friends if friends else (app == "y" and zone is not None)
        repelled = any(z == zone and other == "x" for z, other, _ in placed if z)
        pushed = app == "x" and any(z == zone and repels for z, _, repels in placed if z)
        least = min((count[z] for z in present), default=0)
        even = zone is not None and count[zone] + (app == "x") - least <= skew
        assert allowed[name] == (by_friends and not repelled and not pushed and even), name
