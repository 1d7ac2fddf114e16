"""Spread, and points for closeness, against loops over nodes and pods."""

import math
import random
from types import SimpleNamespace

import numpy as np
import pytest

from builders import pod, worker
from dralab.scheduling import scores, topology
from dralab.scheduling.node_rules import NodeRules
from dralab.scheduling.nodes import NodeTable
from dralab.scheduling.pods import pod_info

KEYS = ("zone", "rack")
TAINT = {"key": "t", "value": "", "effect": "NoSchedule"}


class Cluster:
    """Some nodes and pods; what they say is found by loops."""

    def __init__(self, chance):
        self.table, self.nodes, self.pods = NodeTable(), [], []
        for number in range(chance.randrange(1, 7)):
            labels = {key: chance.choice("abc") for key in KEYS if chance.random() < 0.85}
            labels["gpu"] = chance.choice("yn")
            taints = [TAINT] * (chance.random() < 0.3)
            self.nodes.append((labels, bool(taints)))
            self.table.put_node(worker(f"n{number}", labels=labels, taints=taints))
        for number in range(chance.randrange(9)):
            made = pod(f"p{number}", labels={"app": chance.choice("xy")})
            wishes = []
            if chance.random() < 0.5:
                wishes = [(chance.choice("xy"), chance.choice(KEYS), chance.randrange(-5, 9) or 1)]
            near = [wished(*each) for each in wishes if each[2] > 0]
            far = [wished(app, key, -weight) for app, key, weight in wishes if weight < 0]
            made["spec"]["affinity"] = {
                "podAffinity": {SOFT: near}, "podAntiAffinity": {SOFT: far}
            }  # fmt: skip
            made["metadata"]["uid"] = f"u{number}"
            where = chance.randrange(len(self.nodes))
            self.table.add_pod(f"n{where}", pod_info(made))
            self.pods.append((where, made["metadata"]["labels"]["app"], wishes))

    def domain(self, node, key):
        return self.nodes[node][0].get(key)

    def count(self, app, key, value, among=None):
        return sum(
            each == app and self.domain(where, key) == value
            for where, each, _ in self.pods
            if among is None or where in among
        )


SOFT = "preferredDuringSchedulingIgnoredDuringExecution"


def wished(app, key, weight):
    term = {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}
    return {"weight": weight, "podAffinityTerm": term}


def rule(chance, app, *, hard):
    made = {
        "topologyKey": chance.choice(KEYS),
        "maxSkew": chance.randrange(1, 3),
        "labelSelector": {"matchLabels": {"app": app}},
        "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
    }
    if hard and chance.random() < 0.4:
        made["minDomains"] = chance.randrange(1, 5)
    if chance.random() < 0.4:
        made["nodeAffinityPolicy"] = chance.choice(("Honor", "Ignore"))
    if chance.random() < 0.4:
        made["nodeTaintsPolicy"] = chance.choice(("Honor", "Ignore"))
    return made


@pytest.mark.parametrize("seed", range(120))
def test_hard_spread_is_what_a_loop_says(seed):
    chance = random.Random(seed)
    cluster = Cluster(chance)
    rules = [rule(chance, "x", hard=True) for _ in range(chance.randrange(1, 3))]
    own, choosy = chance.choice("xy"), chance.random() < 0.4
    asked = pod("new", labels={"app": own}, topologySpreadConstraints=rules)
    if choosy:
        asked["spec"]["nodeSelector"] = {"gpu": "y"}
    if tolerant := chance.random() < 0.3:
        asked["spec"]["tolerations"] = [{"operator": "Exists"}]
    found = topology.spread_rules(cluster.table, NodeRules(cluster.table), pod_info(asked))
    allowed = np.all([mask for _, mask in found], axis=0).tolist()

    def is_allowed(node):
        for each in rules:
            key = each["topologyKey"]
            counted = [
                number
                for number, (labels, tainted) in enumerate(cluster.nodes)
                if all(one["topologyKey"] in labels for one in rules)
                and (
                    each.get("nodeAffinityPolicy") == "Ignore" or not choosy or labels["gpu"] == "y"
                )
                and (each.get("nodeTaintsPolicy") != "Honor" or tolerant or not tainted)
            ]
            values = {cluster.domain(number, key) for number in counted}
            counts = {value: cluster.count("x", key, value, counted) for value in values}
            least = min(counts.values(), default=0)
            if len(values) < each.get("minDomains", 1):
                least = 0
            mine = cluster.domain(node, key)
            if any(cluster.domain(node, one["topologyKey"]) is None for one in rules):
                return False
            if counts.get(mine, 0) + (own == "x") - least > each["maxSkew"]:
                return False
        return True

    assert allowed == [is_allowed(node) for node in range(len(cluster.nodes))]


@pytest.mark.parametrize("seed", range(120))
def test_points_for_closeness_are_what_a_loop_says(seed):
    chance = random.Random(seed)
    cluster = Cluster(chance)
    size = len(cluster.nodes)
    wishes = [
        (chance.choice("xy"), chance.choice(KEYS), chance.randrange(1, 9))
        for _ in range(chance.randrange(3))
    ]
    rules = [rule(chance, "x", hard=False) for _ in range(chance.randrange(3))]
    own = chance.choice("xy")
    asked = pod("new", labels={"app": own}, topologySpreadConstraints=rules)
    asked["spec"]["affinity"] = {"podAffinity": {SOFT: [wished(*each) for each in wishes]}}
    among = [chance.random() < 0.8 for _ in range(size)]
    state = SimpleNamespace(table=cluster.table, node_rules=NodeRules(cluster.table))
    plugins = {each.name: each for each in scores.PLUGINS}
    wanted, fitting = pod_info(asked), np.array(among)
    close = plugins["InterPodAffinity"].points(state, wanted, fitting)
    even = plugins["PodTopologySpread"].points(state, wanted, fitting)

    theirs = [
        (cluster.domain(where, key), key, weight)
        for where, _, held in cluster.pods
        for app, key, weight in held
        if app == own
    ]
    near = [0] * size
    for node in range(size):
        for app, key, weight in wishes:
            value = cluster.domain(node, key)
            near[node] += weight * cluster.count(app, key, value) if value else 0
        for value, key, weight in theirs:
            near[node] += weight if value and cluster.domain(node, key) == value else 0
    chosen = [value for value, has in zip(near, among, strict=True) if has]
    low, high = min(chosen, default=0), max(chosen, default=0)
    if low == high:
        assert close is None
    else:
        assert close.tolist() == [int((each - low) / (high - low) * 100) for each in near]

    keys = [each["topologyKey"] for each in rules]
    labelled = [all(key in labels for key in keys) for labels, _ in cluster.nodes]
    judged = [node for node in range(size) if among[node] and labelled[node]]
    if not rules or not judged:
        assert even is None
        return
    crowd = {}
    for node in judged:
        raw = 0.0
        for each, key in zip(rules, keys, strict=True):
            counted = [
                number
                for number in range(size)
                if labelled[number]
                and (each.get("nodeTaintsPolicy") != "Honor" or not cluster.nodes[number][1])
            ]
            count = cluster.count("x", key, cluster.domain(node, key), counted)
            kinds = len({cluster.domain(number, key) for number in judged})
            raw += count * math.log(kinds + 2) + each["maxSkew"] - 1
        crowd[node] = math.floor(raw + 0.5)
    low, high = min(crowd.values()), max(crowd.values())
    expected = {node: (high + low - n) * 100 // high if high else 100 for node, n in crowd.items()}
    assert even.tolist() == [expected.get(node, 0) for node in range(size)]
