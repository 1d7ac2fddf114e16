"""Node pools and autoscalers, in both engines: when nodes come and go, and their cost."""

import pytest

from dralab.scenarios.errors import InputError
from dralab.simulation.dispatch import begin, measured
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario as scenarios
from dralab.simulation.scenario.schedulers import FAST, OWN, PODS
from fakelab import EXAMPLES

GPUS = "{name: gpu, cpu: 64, gpus: 4, model: H100, max: 3, price: 30, startup: 4m}"
JOB = """
apiVersion: batch/v1
kind: Job
metadata: {name: serve, annotations: {simulation.dralab.dev/runs: RUNS}}
spec:
  parallelism: 4
  completions: 4
  template:
    spec:
      restartPolicy: Never
      containers:
      - {name: c, image: i, resources: {requests: {cpu: 14}}}
"""


@pytest.fixture(params=[OWN, FAST])
def run(tmp_path, request):
    def run(pools, pods, more="", *, fleet="", work=""):
        path = tmp_path / "scenario.yaml"
        work = work or f"{{pods: [{pods}]}}"
        fleet = f"fleet: {{nodes: [{fleet}]}}\n" if fleet else ""
        path.write_text(
            f"{fleet}pools: [{pools}]\nworkload: {work}\nscheduler: {request.param}\n{more}"
        )
        scenario = scenarios.load(path)
        found = measured(scenario, begin(scenario).go())
        return found, metrics.metrics_of(found)

    return run


def spans(result):
    """The nodes with the seconds at which they were asked for, ready and gone, and why they went."""
    return {
        node.name: (
            node.asked // 10**9,
            None if node.ready is None else node.ready // 10**9,
            node.gone // 10**9,
            node.reason,
        )
        for node in result.nodes
    }


def test_a_pool_without_nodes_grows_for_claims_and_shrinks_when_they_end(run):
    pods = "{name: a, count: 4, cpu: 1, gpus: 2, duration: 1h}, {name: b, cpu: 1, at: 3h, duration: 1m}"
    result, found = run(GPUS, pods)
    # Seen at ten seconds, four minutes to start; ten minutes unneeded, then a third comes for b.
    assert spans(result) == {
        "gpu-0": (10, 250, 4460, "unneeded"),
        "gpu-1": (10, 250, 4460, "unneeded"),
        "gpu-2": (10810, 11050, 11110, ""),
    }
    assert found["wait_max"] == 250
    assert found["nodes_asked"] == 3
    assert found["most_nodes"] == 2
    assert found["cost"] == pytest.approx(30 * (2 * 4450 + 300) / 3600)
    assert found["idle_cost"] == pytest.approx(30 * (2 * 850 + 240) / 3600)
    assert found["utilisation_gpu"] < 1


def test_pods_wait_for_devices_that_come_after_their_node_and_no_second_node_is_asked_for(run):
    """kubernetes/autoscaler #7780: a node is ready long before its driver has published."""
    pool = GPUS.replace("startup: 4m", "startup: 1m, devices: 9m")
    result, found = run(pool, "{name: a, count: 2, cpu: 1, gpus: 2, duration: 1h}")
    assert found["nodes_asked"] == 1
    assert spans(result)["gpu-0"][:2] == (10, 610)
    assert found["wait_max"] == 610


def test_a_node_that_never_comes_is_given_up_and_another_pool_is_asked(run):
    first = "{name: bad, cpu: 64, gpus: 4, failure: 1, priority: 9}"
    result, found = run(
        f"{first}, {GPUS}", "{name: a, cpu: 1, gpus: 2, duration: 1h}",
        "stop: {at: 1d}\nautoscaler: {cluster-autoscaler: {expander: [priority]}}",
    )  # fmt: skip
    # After fifteen minutes; the failed pool is left alone for five.
    assert spans(result) == {
        "bad-0": (10, None, 910, "never came"),
        "gpu-0": (910, 1150, 4750, ""),
    }
    assert found["nodes_failed"] == 1
    assert found["wait_max"] == 1150


def test_a_failed_pool_that_is_the_only_one_is_asked_again_later(run):
    only = "{name: bad, cpu: 64, failure: 1}"
    result, _ = run(only, "{name: a, cpu: 1, duration: 1h}", "stop: {at: 2h}")
    assert [node.asked // 10**9 for node in result.nodes] == [10, 1210, 2710, 4810]


def test_spot_machines_are_taken_back_and_their_pods_begin_again(run):
    pool = GPUS.replace("startup: 4m", "startup: 1m, spot: {every: 2h, notice: 2m}")
    result, found = run(
        pool, "{name: a, count: 3, cpu: 1, gpus: 4, duration: 3h}", "seed: 4\nstop: {at: 7d}"
    )
    assert found["nodes_taken_back"] > 0
    assert found["succeeded"] == 3
    assert found["evictions"] == sum(
        node.reason == "taken back" for node in result.nodes if node.gone < result.end
    )


def test_there_are_always_as_many_nodes_as_the_least(run):
    pool = GPUS.replace("max: 3", "min: 1, max: 3")
    result, _ = run(
        pool, "{name: a, cpu: 1, gpus: 2, duration: 1h}, {name: b, at: 9h, cpu: 1, duration: 1m}"
    )
    assert spans(result) == {"gpu-0": (0, 0, 32460, "")}


def test_pods_of_a_job_move_together_so_that_a_node_can_go(run, tmp_path):
    """Two fit on a node; when two of four are over, the other two share one."""
    (tmp_path / "job.yaml").write_text(JOB.replace("RUNS", "1h"))
    _, found = run(
        "{name: cpu, cpu: 30, memory: 64Gi, max: 4, startup: 1m, price: 1}", "",
        "autoscaler: {cluster-autoscaler: {threshold: 0.6}}", work="{manifests: job.yaml}",
    )  # fmt: skip
    assert found["nodes_asked"] == 2
    assert found["succeeded"] == 4


def test_nodes_that_are_there_are_used_first(run):
    result, found = run(
        GPUS, "{name: a, count: 2, cpu: 8, duration: 1h}", fleet="{name: own, cpu: 16}"
    )
    assert spans(result) == {}
    assert "cost" not in found


def test_a_shape_of_the_catalogue_brings_partitions(run, tmp_path):
    (tmp_path / "pods.yaml").write_text(
        """
apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {name: part, namespace: default}
spec:
  spec:
    devices:
      requests:
      - name: r
        exactly:
          deviceClassName: gpu.nvidia.com
          selectors:
          - cel: {expression: "device.attributes['gpu.nvidia.com'].?migProfile.orValue('') == '1g.5gb'"}
"""
        + "".join(
            f"""
---
apiVersion: v1
kind: Pod
metadata: {{name: p{n}, annotations: {{simulation.dralab.dev/runs: 1h}}}}
spec:
  resourceClaims: [{{name: c, resourceClaimTemplateName: part}}]
  containers: [{{name: c, image: i, resources: {{claims: [{{name: c}}]}}}}]
"""
            for n in range(8)
        )
    )
    pool = "{name: dgx, shape: a100-40, max: 2, startup: 1m}"
    _, found = run(pool, "", work="{manifests: pods.yaml}")
    assert found["succeeded"] == 8
    assert found["nodes_asked"] == 1
    assert found["wait_max"] == 70


def test_the_same_seed_gives_the_same_run(run):
    pools = GPUS.replace("startup: 4m", "startup: {delay: 1m, jitter: 5m}, spot: {every: 1h}")
    pods = "{name: a, count: 5, cpu: 1, gpus: 2, duration: 30m, every: 5m}"
    first, again = (run(pools, pods, "stop: {at: 1d}")[0] for _ in range(2))
    assert first.nodes == again.nodes
    assert first.tasks == again.tasks


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("pools: [{name: a, cpu: 4, min: 5, max: 2}]", "is 5 and `max` only 2"),
        ("pools: [{name: a, cpu: 4}, {name: a, cpu: 4}]", "there are two pools 'a'"),
        ("pools: [{name: a, gpus: 4}]", "must have exactly one of cpu, shape, manifests"),
        ("pools: [{name: a, shape: dgxa100, gpus: 4}]", "is unknown"),
        ("pools: [{name: a, cpu: 4, failure: 1}]", "give `at`"),
        ("pools: [{name: a, cpu: 4, spot: {every: 1h}}]", "give `at`"),
        ("pools: [{name: a, cpu: 4}]\nautoscaler: {x: {}}", "must have exactly one of"),
        ("pools: [{name: a, cpu: 4}]\nautoscaler: {karpenter: {budget: some}}", "is not a number"),
        ("pools: [{name: a, cpu: 4}]\nautoscaler: mine", "'mine' is not one of"),
        ("autoscaler: cluster-autoscaler\nfleet: {nodes: [{cpu: 1}]}", "is unknown"),
        ("name: x", "must be given, or `pools`"),
    ],
)
def test_what_is_wrong_with_pools_is_said(tmp_path, text, problem):
    path = tmp_path / "scenario.yaml"
    path.write_text(f"{text}\nworkload: {{pods: [{{name: p, cpu: 1}}]}}\nscheduler: dralab\n")
    with pytest.raises(InputError, match=problem.replace("[", r"\[")):
        scenarios.load(path)


def test_schedulers_of_jobs_and_of_others_refuse_pools(tmp_path):
    path = tmp_path / "scenario.yaml"
    for scheduler in ("easy", "external", "ticks"):
        path.write_text(
            f"pools: [{{name: a, cpu: 4}}]\nworkload: {{pods: []}}\nscheduler: {scheduler}\n"
        )
        with pytest.raises(InputError, match="need dralab, dralab-fast or a policy for pods"):
            scenarios.load(path)


# --- policies for pods ----------------------------------------------------------------------------


@pytest.fixture
def run_policy(tmp_path):
    def run(scheduler, pools, pods, more=""):
        path = tmp_path / "scenario.yaml"
        path.write_text(
            f"pools: [{pools}]\nworkload: {{pods: [{pods}]}}\nscheduler: {scheduler}\n{more}"
        )
        scenario = scenarios.load(path)
        return measured(scenario, begin(scenario).go())

    return run


@pytest.mark.parametrize("autoscaler", ["cluster-autoscaler", "karpenter"])
@pytest.mark.parametrize("policy", [*PODS, "allocation:pack", "allocation:spread"])
def test_pools_grow_for_parts_of_gpus_whatever_the_policy(run_policy, policy, autoscaler):
    # 12 pods of 0.3 GPUs: 3 on each GPU make a node of 4; the 2 with two GPUs need another.
    pods = (
        "{name: part, count: 12, cpu: 1, gpus: 1, gpu_milli: 300, duration: 1h}, "
        "{name: pair, count: 2, cpu: 1, gpus: 2, duration: 1h}"
    )
    result = run_policy(policy, GPUS, pods, f"autoscaler: {autoscaler}\n")
    # A policy that scatters the parts leaves no pair of idle GPUs.
    assert 2 <= len(result.nodes) <= 3
    assert all(task.state == "Succeeded" and task.lanes for task in result.tasks)


def test_pods_wait_where_a_pool_is_full_of_shared_gpus(run_policy):
    pods = "{name: whole, count: 5, cpu: 1, gpus: 4, duration: 1h}"
    result = run_policy("fgd", GPUS, pods)
    assert len(result.nodes) == 3
    started = sorted(task.started // 10**9 for task in result.tasks)
    assert started == [250, 250, 250, 3850, 3850]


def test_a_class_of_ones_own_places_pods_on_nodes_of_pools(run_policy, tmp_path):
    (tmp_path / "mine.py").write_text(
        "import dralab\n\n\nclass Last(dralab.Policy):\n"
        "    def place(self, task, nodes):\n        return nodes[-1].name\n"
    )
    pods = "{name: a, count: 2, cpu: 1, gpus: 1, duration: 1h}"
    result = run_policy("mine.py:Last", GPUS, pods)
    assert [task.state for task in result.tasks] == ["Succeeded", "Succeeded"]


# --- karpenter ------------------------------------------------------------------------------------

SHAPES = (
    "{name: one, cpu: 16, gpus: 1, price: 3, startup: 1m}, "
    "{name: four, cpu: 64, gpus: 4, price: 10, startup: 1m}"
)


def test_karpenter_collects_pods_for_a_moment_and_takes_the_cheapest_shape(run):
    pods = "{name: a, count: 3, cpu: 1, gpus: 1, duration: 1h}"
    result, found = run(SHAPES, pods, "autoscaler: karpenter")
    assert spans(result) == {"four-0": (1, 61, 3661, "")}
    assert found["wait_max"] == 61


def test_karpenter_gives_up_empty_nodes_and_replaces_one_that_is_too_large(run):
    pods = "{name: a, count: 3, cpu: 1, gpus: 1, duration: 1h}, {name: b, cpu: 1, gpus: 1, duration: 5h}"
    result, found = run(SHAPES, pods, "autoscaler: {karpenter: {budget: 1}}")
    # Decided at the next turn and confirmed fifteen seconds later; b begins again on its own node.
    assert spans(result) == {
        "four-0": (1, 61, 3751, "Underutilized"),
        "one-0": (3690, 3750, 21750, ""),
    }
    assert found["evictions"] == 1


def test_no_new_pod_goes_to_a_node_whose_replacement_is_on_its_way(run):
    pods = (
        "{name: a, count: 3, cpu: 1, gpus: 1, duration: 1h}, {name: b, cpu: 1, gpus: 1, duration: 5h}, "
        "{name: c, cpu: 1, at: 3700s, duration: 1h}"
    )
    result, found = run(SHAPES, pods, "autoscaler: {karpenter: {budget: 1}}")
    # c waits for the smaller node, where there is room beside b: none is asked for it alone.
    assert {name: (span[1], span[3]) for name, span in spans(result).items()} == {
        "four-0": (61, "Underutilized"), "one-0": (3750, ""),
    }  # fmt: skip
    assert found["evictions"] == 1


def test_the_room_of_a_replacement_is_for_the_pods_of_the_node_that_it_replaces(run):
    pods = (
        "{name: a, count: 3, cpu: 1, gpus: 1, duration: 1h}, {name: b, cpu: 1, gpus: 1, duration: 5h}, "
        "{name: c, cpu: 1, gpus: 1, at: 3700s, duration: 1h}"
    )
    result, _ = run(SHAPES, pods, "autoscaler: {karpenter: {budget: 1}}")
    # The GPU of one-0 is b's: c gets a node of its own a second after it was refused.
    assert {name: span[0] for name, span in spans(result).items()} == {
        "four-0": 1, "one-0": 3690, "one-1": 3701,
    }  # fmt: skip


def test_karpenter_may_be_told_to_give_up_empty_nodes_alone(run):
    pods = "{name: a, count: 3, cpu: 1, gpus: 1, duration: 1h}, {name: b, cpu: 1, gpus: 1, duration: 5h}"
    result, found = run(SHAPES, pods, "autoscaler: {karpenter: {consolidation: WhenEmpty}}")
    assert list(spans(result)) == ["four-0"]
    assert found["evictions"] == 0


# --- NodePools of a user --------------------------------------------------------------------------

NODE_POOL = """
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: NAME}
spec:
  template:
    metadata: {labels: {team: ml}}
    spec:
      nodeClassRef: {group: karpenter.kwok.sh, kind: KWOKNodeClass, name: default}
      requirements: [REQUIREMENTS]
      MORE
  disruption: {DISRUPTION}
  SPEC
"""
ON_DEMAND = "{key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}"


def node_pool(name="main", requirements=ON_DEMAND, more="", disruption="", spec=""):
    filled = NODE_POOL.replace("NAME", name).replace("REQUIREMENTS", requirements)
    return filled.replace("MORE", more).replace("DISRUPTION", disruption).replace("SPEC", spec)


@pytest.fixture
def run_with(run, tmp_path):
    def run_with(node_pools, pods, *, pools=SHAPES, more=""):
        (tmp_path / "nodepools.yaml").write_text("\n---\n".join(node_pools))
        how = "autoscaler: {karpenter: {node_pools: nodepools.yaml}}"
        return run(pools, pods, f"{how}\n{more}")

    return run_with


def test_a_node_pool_asks_only_for_instance_types_that_meet_its_requirements(run_with):
    named = "{key: node.kubernetes.io/instance-type, operator: NotIn, values: [four]}"
    pods = "{name: a, count: 3, cpu: 1, gpus: 1, duration: 1h}"
    result, _ = run_with([node_pool(requirements=f"{ON_DEMAND}, {named}")], pods)
    assert sorted(spans(result)) == ["main-one-0", "main-one-1", "main-one-2"]


def test_the_heavier_node_pool_comes_first_until_its_limits_are_reached(run_with):
    first = node_pool("first", spec="limits: {cpu: 32}\n  weight: 10")
    pods = "{name: a, count: 6, cpu: 12, gpus: 1, duration: 1h}"
    result, found = run_with([first, node_pool("second")], pods)
    names = [name.rsplit("-", 1)[0] for name in spans(result)]
    assert names.count("first-one") == 2
    assert all(name.startswith("second") for name in names if name != "first-one")
    assert found["succeeded"] == 6


def test_taints_keep_pods_away_and_startup_taints_only_until_the_node_is_ready(run_with):
    tainted = node_pool("a", more="taints: [{key: gpu, effect: NoSchedule}]")
    starting = node_pool("b", more="startupTaints: [{key: starting, effect: NoSchedule}]")
    shapes = SHAPES.replace("startup: 1m", "startup: 1m, devices: 30s")
    pods = "{name: p, cpu: 1, duration: 1h}"
    result, found = run_with([tainted, starting], pods, pools=shapes)
    assert spans(result) == {"b-one-0": (1, 91, 3691, "")}
    assert found["wait_max"] == 91


def test_a_taint_of_the_node_pool_replaces_that_of_the_instance_type(run_with):
    shape = "{name: one, cpu: 16, price: 1, taints: ['gpu=a:NoSchedule']}"
    tainted = node_pool(more="taints: [{key: gpu, value: b, effect: NoSchedule}]")
    result, _ = run_with([tainted], "{name: p, cpu: 1, duration: 1h}", pools=shape)
    assert spans(result) == {}


@pytest.mark.parametrize("written", ["gpu=a:NoSchedule", "gpu:NoSchedule"])
def test_a_node_has_one_taint_of_a_key_and_effect(tmp_path, written):
    taints = "taints: [{key: gpu, value: b, effect: NoSchedule}]"
    (tmp_path / "nodepools.yaml").write_text(node_pool(more=taints))
    (tmp_path / "scenario.yaml").write_text(
        f"pools: [{{name: one, cpu: 16, price: 1, taints: ['{written}']}}]\n"
        "workload: {pods: []}\nscheduler: dralab-fast\n"
        "autoscaler: {karpenter: {node_pools: nodepools.yaml}}"
    )
    (pool,) = scenarios.load(tmp_path / "scenario.yaml").pools
    assert pool.fleet.nodes[0].taints == ("gpu=b:NoSchedule",)


def test_a_node_expires_and_its_pods_begin_again_on_another(run_with):
    short = node_pool(more="expireAfter: 1h")
    result, found = run_with(
        [short], "{name: a, cpu: 1, gpus: 1, duration: 90m}", more="stop: {at: 3h}"
    )
    assert spans(result)["main-one-0"] == (1, 61, 3602, "Expired")
    assert found["evictions"] >= 1


EIGHT = (
    "{name: a, count: 4, cpu: 12, gpus: 1, duration: 1h}, {name: b, cpu: 1, at: 5h, duration: 1m}"
)
ONES = "{name: one, cpu: 16, gpus: 1, price: 3, startup: 1m}"


def gone(result):
    return sorted(node.gone // 10**9 for node in result.nodes if node.reason == "Empty")


def test_no_more_nodes_of_a_node_pool_go_at_a_time_than_its_budget_allows(run_with):
    all_at_once, _ = run_with(
        [node_pool(disruption='budgets: [{nodes: "100%"}]')], EIGHT, pools=ONES
    )
    one_by_one, _ = run_with([node_pool(disruption='budgets: [{nodes: "1"}]')], EIGHT, pools=ONES)
    assert len(set(gone(all_at_once))) == 1
    assert len(set(gone(one_by_one))) == len(gone(one_by_one)) == 4


def test_a_budget_with_a_schedule_keeps_nodes_until_its_time_is_over(run_with):
    # The run begins at midnight: none go in the first three hours.
    night = 'budgets: [{nodes: "0", schedule: "@daily", duration: 3h}, {nodes: "100%"}]'
    result, _ = run_with([node_pool(disruption=night)], EIGHT, pools=ONES)
    assert set(gone(result)) == {10820}


def test_consolidate_after_never_keeps_nodes(run_with):
    result, _ = run_with([node_pool(disruption="consolidateAfter: Never")], EIGHT, pools=ONES)
    assert gone(result) == []


def test_what_of_a_node_pool_is_not_acted_on_is_noted(run_with):
    graceful = node_pool(more="terminationGracePeriod: 30s")
    kwok = (
        "apiVersion: karpenter.kwok.sh/v1alpha1\nkind: KWOKNodeClass\nmetadata: {name: default}\n"
    )
    result, _ = run_with([graceful, kwok], "{name: p, cpu: 1, duration: 1m}")
    assert (
        "NodePool main: spec.template.spec.terminationGracePeriod is not acted on" in result.notes
    )
    assert any("KWOKNodeClass is not acted on" in note for note in result.notes)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (node_pool(disruption='budgets: [{nodes: "110%"}]'), "'110%' is not a number of nodes"),
        (node_pool(disruption="budgets: [{schedule: '@daily'}]"), "must be set with duration"),
        (node_pool(disruption="budgets: [{schedule: 'x', duration: 1h}]"), "'x' is not a schedule"),
        (node_pool(disruption="budgets: [{reasons: [Old]}]"), "'Old' is not one of"),
        (node_pool(disruption="consolidationPolicy: Balanced"), "'Balanced' is not one of"),
        (node_pool(requirements="{key: a, operator: In}"), "values.*must be given"),
        (node_pool(requirements="{key: a, operator: Gt, values: [x]}"), "needs one whole number"),
        (node_pool(requirements="{key: zone, operator: Exists}"), "no pool meets the requirements"),
        (node_pool(spec="limits: {cpu: many}"), "'many' is not a quantity"),
        (node_pool(spec="size: 4"), "spec.size.*is unknown"),
        ("apiVersion: v1\nkind: Pod\n", "has no NodePool"),
    ],
)
def test_what_is_wrong_with_a_node_pool_is_said(tmp_path, text, problem):
    path = tmp_path / "scenario.yaml"
    (tmp_path / "np.yaml").write_text(text)
    path.write_text(
        f"pools: [{SHAPES}]\nworkload: {{pods: [{{name: p, cpu: 1}}]}}\nscheduler: dralab\n"
        "autoscaler: {karpenter: {node_pools: np.yaml}}\n"
    )
    with pytest.raises(InputError, match=problem):
        scenarios.load(path)


def test_an_autoscaler_scores_nodes_as_kubernetes_whatever_the_policy_of_pods():
    path = EXAMPLES / "59-autoscaling/day.yaml"
    result = begin(scenarios.load(path, scheduler="firstfit")).go()
    assert {task.state for task in result.tasks} == {"Succeeded"}
    assert len(result.nodes) > 1
