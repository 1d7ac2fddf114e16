"""Random scenarios that two engines have to decide alike, and what of their results is compared."""

from collections.abc import Iterator
from random import Random

import yaml

S = 1_000_000_000
CAUSES = (
    "templates", "shared", "partitions", "taints", "device taints", "priorities", "gangs",
    "outages", "affinity", "spread", "extended", "alternatives", "quotas", "consumable",
)  # fmt: skip


def scenario_of(seed: int, most: int = 40) -> tuple[dict, list[dict], list[dict]]:
    """Return the scenario of a seed, and the manifests of its fleet and of its workload."""
    chance = Random(seed)
    some = {cause for cause in CAUSES if chance.random() < 0.45}
    nodes = chance.randint(2, 6)
    driver = "gpu.example.com"
    fleet = [*_nodes(chance, nodes, some), *_devices(chance, driver, nodes, some)]
    objects = list(_templates(chance, driver, some))
    names = [item["metadata"]["name"] for item in objects if "Template" in item["kind"]]
    shared = [item["metadata"]["name"] for item in objects if item["kind"] == "ResourceClaim"]
    pods = list(_pods(chance, some, names, shared, most))
    text: dict = {
        "seed": seed,
        "fleet": {"manifests": "fleet.yaml"},
        "workload": {"manifests": "pods.yaml"},
        "stop": {"at": "3000s"},
    }
    faults = []
    if "outages" in some:
        faults += [
            {
                "node": f"n{chance.randrange(nodes)}",
                "at": f"{chance.randint(5, 300)}.{chance.randint(1, 9)}s",
                "for": f"{chance.randint(20, 600)}s",
            }
            for _ in range(chance.randint(1, 2))
        ]
    if "taints" in some and chance.random() < 0.5:
        effect = chance.choice(["NoSchedule", "NoExecute"])
        faults.append(
            {
                "node": f"n{chance.randrange(nodes)}",
                "at": f"{chance.randint(5, 300)}.5s",
                "for": f"{chance.randint(20, 400)}s",
                "taint": {"key": "team", "value": "b", "effect": effect},
            }
        )
    if "device taints" in some:
        faults.append(
            {
                "node": f"n{chance.randrange(nodes)}",
                "device": "d0",
                "at": f"{chance.randint(5, 200)}.25s",
                "for": f"{chance.randint(20, 400)}s",
                "taint": {"key": "broken", "effect": "NoSchedule"},
            }
        )
    if faults:
        text["faults"] = faults
    if "quotas" in some:
        text["queues"] = {"q": {"cpu": chance.randint(4, 12)}}
    later = Random(f"more of {seed}")  # another stream: what was drawn before stays as it was
    if later.random() < 0.4:
        text["lifecycle"] = {
            "start": f"{later.randint(1, 9)}s",
            "release": f"{later.randint(1, 4)}.5s",
        }
    if later.random() < 0.4:
        for pod in pods:
            if later.random() < 0.3:
                cpu = {"requests": {"cpu": later.choice(["500m", "3"])}}
                first = [{"name": "first", "image": "x", "resources": cpu}]
                pod["spec"] = {**pod["spec"], "initContainers": first}
    return text, fleet, [*objects, *pods]


def with_pools(seed: int, text: dict, fleet: list[dict]) -> dict:
    """Return a scenario with fewer nodes, and pools like those that are left out."""
    chance = Random(f"pools of {seed}")
    names = [item["metadata"]["name"] for item in fleet if item["kind"] == "Node"]
    kept = chance.randint(0, len(names) - 1)
    pools = []
    for name in names[kept:][:3]:
        pool: dict = {
            "name": f"p{name}",
            "manifests": f"{name}.yaml",
            "max": chance.randint(1, 4),
            "price": chance.choice([1, 2, 3.5]),
            "startup": chance.choice(["0s", "20s", {"delay": "5s", "jitter": "60s"}]),
            "devices": chance.choice(["0s", "0s", "15s", {"jitter": "30s"}]),
        }
        others = {
            "min": 1,
            "priority": chance.randint(1, 3),
            "failure": 0.3,
            "spot": {"every": "200s", "notice": chance.choice(["0s", "20s"])},
        }
        pool |= {key: value for key, value in others.items() if chance.random() < 0.25}
        pools.append(pool)
    if chance.random() < 0.5:
        how = {
            "cluster-autoscaler": {
                "expander": [chance.choice(["least-waste", "price", "priority", "most-pods", "random"])],
                "unneeded": "30s", "delay_after_add": "20s", "provision_timeout": "90s",
                "threshold": chance.choice([0.5, 0.8]),
            }
        }  # fmt: skip
    else:
        how = {
            "karpenter": {
                "consolidate_after": chance.choice(["0s", "0s", "25s"]),
                "budget": chance.choice(["10%", "1", "100%"]),
                "provision_timeout": "90s",
            }
        }
    out = set(names[kept:])
    faults = [each for each in text.pop("faults", ()) if each["node"] not in out]
    there = {**text, "faults": faults} if faults else text
    if not kept:
        there = {key: value for key, value in there.items() if key != "fleet"}
    return {**there, "pools": pools, "autoscaler": how}


def with_node_pools(seed: int, text: dict) -> list[dict]:
    """Let NodePools decide in a scenario with Karpenter, if chance will; return them."""
    chance = Random(f"node pools of {seed}")
    rules = text["autoscaler"].get("karpenter")
    if rules is None or chance.random() < 0.4:
        return []
    for key in ("consolidate_after", "budget"):
        del rules[key]
    rules["node_pools"] = "nodepools.yaml"
    for pool in text["pools"]:
        pool.pop("min", None)
    return [_node_pool(chance, name) for name in "ab"[: chance.randint(1, 2)]]


def _node_pool(chance: Random, name: str) -> dict:
    budgets = [
        {"nodes": chance.choice(["0", "1", "50%"]), "reasons": ["Empty"]},
        {"nodes": chance.choice(["0", "1"]), "schedule": "*/20 * * * *", "duration": "7m"},
    ]
    template: dict = {"expireAfter": chance.choice(["Never", "300s", "1h"])}
    if chance.random() < 0.4:
        template["startupTaints"] = [{"key": "starting", "effect": "NoSchedule"}]
    if chance.random() < 0.3:
        template["taints"] = [{"key": "team", "value": "a", "effect": "NoSchedule"}]
    spec: dict = {
        "template": {"spec": template},
        "disruption": {
            "consolidateAfter": chance.choice(["0s", "30s"]),
            "budgets": budgets[: chance.randint(0, 2)],
        },
        "weight": chance.randint(1, 3),
    }
    if chance.random() < 0.5:
        spec["limits"] = chance.choice([{"cpu": 20}, {"nodes": 3}, {"memory": "100Gi", "cpu": 40}])
    return _object("karpenter.sh/v1", "NodePool", name, spec=spec)


def _files_of_pools(text: dict, fleet: list[dict]) -> dict[str, list[dict]]:
    """Return the files of the nodes that are left out, and of those that are there."""
    common = [item for item in fleet if item["kind"] not in {"Node", "ResourceSlice"}]
    own: dict[str, list[dict]] = {}
    for item in fleet:
        if item["kind"] == "Node":
            own.setdefault(item["metadata"]["name"], []).append(item)
        elif item["kind"] == "ResourceSlice":
            own.setdefault(item["spec"]["nodeName"], []).append(item)
    out = {pool["manifests"].removesuffix(".yaml") for pool in text["pools"]}
    names = list(own)
    first = names.index(min(out, key=names.index))
    files = {f"{name}.yaml": [*common, *own[name]] for name in out}
    files["fleet.yaml"] = [*common, *(item for name in names[:first] for item in own[name])]
    return files


def _nodes(chance: Random, nodes: int, some: set[str]) -> Iterator[dict]:
    for number in range(nodes):
        amounts = {"cpu": chance.choice(["4", "8", "16"]), "memory": "32Gi"}
        made = _object("v1", "Node", f"n{number}", status={"allocatable": amounts})
        made["metadata"]["labels"] = {"zone": f"z{number % 2}"}
        if "taints" in some and chance.random() < 0.4:
            made["spec"] = {"taints": [{"key": "team", "value": "a", "effect": "NoSchedule"}]}
        yield made


def _devices(chance: Random, driver: str, nodes: int, some: set[str]) -> Iterator[dict]:
    spec: dict = {"selectors": [{"cel": {"expression": f"device.driver == '{driver}'"}}]}
    if "extended" in some:
        spec["extendedResourceName"] = "example.com/gpu"
    yield _object("resource.k8s.io/v1", "DeviceClass", "gpu", spec=spec)
    for number in range(nodes):
        count = chance.randint(1, 4)
        body: dict = {"driver": driver, "nodeName": f"n{number}"}
        pool = {"name": f"n{number}", "generation": 1, "resourceSliceCount": 1}
        devices = [
            {
                "name": f"d{index}",
                "attributes": {"model": {"string": chance.choice(["a", "a", "b"])}},
                "capacity": {"memory": {"value": chance.choice(["40Gi", "80Gi"])}},
            }
            for index in range(count)
        ]
        if "consumable" in some:
            for device in devices:
                device["allowMultipleAllocations"] = True
        elif "partitions" in some:
            pool["resourceSliceCount"] = 2
            counters = {
                **body,
                "pool": pool,
                "sharedCounters": [
                    {"name": "card", "counters": {"slices": {"value": str(2 * count)}}}
                ],
            }
            yield _object("resource.k8s.io/v1", "ResourceSlice", f"n{number}-c", spec=counters)
            for index, device in enumerate(devices):
                uses = {"slices": {"value": "2" if index % 2 else "1"}}
                device["consumesCounters"] = [{"counterSet": "card", "counters": uses}]
        yield _object(
            "resource.k8s.io/v1",
            "ResourceSlice",
            f"n{number}-d",
            spec={**body, "pool": pool, "devices": devices},
        )


def _templates(chance: Random, driver: str, some: set[str]) -> Iterator[dict]:
    for number in range(3):
        one: dict = {"deviceClassName": "gpu"}
        if chance.random() < 0.4:
            one["count"] = 2
        if chance.random() < 0.4:
            text = f"device.attributes['{driver}'].model == 'a'"
            one["selectors"] = [{"cel": {"expression": text}}]
        if "consumable" in some:
            one["capacity"] = {"requests": {"memory": chance.choice(["10Gi", "20Gi"])}}
        request: dict = {"name": "r", "exactly": one}
        if "alternatives" in some and number == 1:
            other = {**one, "name": "second", "count": 1}
            request = {"name": "r", "firstAvailable": [{**one, "name": "first"}, other]}
        spec = {"devices": {"requests": [request]}}
        yield _object(
            "resource.k8s.io/v1", "ResourceClaimTemplate", f"t{number}", "default",
            spec={"spec": spec},
        )  # fmt: skip
        if "shared" in some and number < 2:
            yield _object("resource.k8s.io/v1", "ResourceClaim", f"c{number}", "default", spec=spec)
    for value in (5, 9) if "priorities" in some else ():
        made = _object("scheduling.k8s.io/v1", "PriorityClass", f"p{value}")
        yield {**made, "value": value}


def _pods(
    chance: Random, some: set[str], templates: list[str], shared: list[str], most: int
) -> Iterator[dict]:
    when = 0.0
    gangs = 0
    number = 0
    while number < most:
        when += chance.choice([0.0, 0.3, 1.7, 8.9, 21.3])
        size = 1
        if "gangs" in some and chance.random() < 0.12:
            size, gangs = chance.randint(2, 3), gangs + 1
        spec, labels = _spec(chance, some, templates, shared)
        if size > 1:
            labels["pod-group.scheduling.sigs.k8s.io"] = f"g{gangs}"
            spec.pop("topologySpreadConstraints", None)
        if "quotas" in some and chance.random() < 0.5:
            labels["kueue.x-k8s.io/queue-name"] = "q"
        runs = f"{chance.randint(5, 120)}.{chance.randint(0, 999):03}s"
        for _ in range(size):
            pod = _object("v1", "Pod", f"pod-{number}", "default", spec=spec)
            pod["metadata"] |= {
                "labels": labels,
                "annotations": {
                    "simulation.dralab.dev/arrives": f"{when:.1f}s",
                    "simulation.dralab.dev/runs": runs,
                },
            }
            number += 1
            yield pod


def _spec(
    chance: Random, some: set[str], templates: list[str], shared: list[str]
) -> tuple[dict, dict]:
    resources: dict = {"requests": {"cpu": chance.choice(["500m", "1", "2", "4"])}}
    spec: dict = {}
    labels = {"app": chance.choice(["x", "y"])}
    kind = chance.random()
    if kind < 0.5 and "templates" in some:
        entry = {"name": "g", "resourceClaimTemplateName": chance.choice(templates)}
        spec["resourceClaims"] = [entry]
    elif kind < 0.7 and shared:
        spec["resourceClaims"] = [{"name": "g", "resourceClaimName": chance.choice(shared)}]
    elif kind < 0.8 and "extended" in some:
        resources["limits"] = {"example.com/gpu": "1"}
    if "resourceClaims" in spec:
        resources["claims"] = [{"name": "g"}]
    if "taints" in some and chance.random() < 0.5:
        spec["tolerations"] = [{"key": "team", "operator": "Exists"}]
        if chance.random() < 0.3:
            spec["tolerations"][0] |= {"effect": "NoExecute", "tolerationSeconds": 30}
    if "priorities" in some and chance.random() < 0.4:
        spec["priorityClassName"] = chance.choice(["p5", "p9"])
    if "affinity" in some and chance.random() < 0.3:
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": "kubernetes.io/hostname"}
        which = chance.choice(["podAffinity", "podAntiAffinity"])
        needed = "requiredDuringSchedulingIgnoredDuringExecution"
        spec["affinity"] = {which: {needed: [term]}}
    if "spread" in some and chance.random() < 0.3:
        spec["topologySpreadConstraints"] = [
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": chance.choice(["DoNotSchedule", "ScheduleAnyway"]),
                "labelSelector": {"matchLabels": labels},
            }
        ]
    spec["containers"] = [{"name": "main", "image": "x", "resources": resources}]
    return spec, labels


def _object(version: str, kind: str, name: str, namespace: str = "", **more) -> dict:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, **more}


def write(folder, seed: int, most: int = 40, *, pools: bool = False):
    """Write the scenario of a seed, with at least `most` pods; return its file."""
    text, fleet, objects = scenario_of(seed, most)
    files = {"fleet.yaml": fleet}
    if pools:
        text = with_pools(seed, text, fleet)
        files = _files_of_pools(text, fleet)
        files["nodepools.yaml"] = with_node_pools(seed, text)
    for name, items in files.items():
        (folder / name).write_text(yaml.safe_dump_all(items))
    (folder / "pods.yaml").write_text(yaml.safe_dump_all(objects))
    path = folder / "scenario.yaml"
    path.write_text(yaml.safe_dump(text))
    return path


def nodes_seen(result, until: int) -> list:
    """Return the nodes of pools that came or went by then."""
    return [
        (node.name, node.asked, node.ready, (node.gone, node.reason) if node.gone < until else None)
        for node in result.nodes
        if node.asked < until
    ]


def seen(result) -> dict:
    """Return of each task its state, devices and times, and how often it lost its node."""
    return {
        task.id: (
            task.state,
            tuple(result.lanes[lane] for lane in task.lanes),
            *(
                None if when is None else when / S
                for when in (task.bound, task.started, task.ended)
            ),
            task.evictions,
        )
        for task in result.tasks
    }
