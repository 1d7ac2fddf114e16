"""The FGD experiment: against slow formulas, and against the published means."""

import csv
import json
from statistics import fmean

import numpy as np
import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st

from dralab.cli.main import main
from dralab.scenarios.errors import InputError, InputProblems
from dralab.scheduling import scores
from dralab.scheduling.cycle import kind_of, placement, refusal
from dralab.scheduling.filters import passing
from dralab.scheduling.kinds import KindScores
from dralab.scheduling.pods import changed
from dralab.scheduling.shares import SharedGpus, Shares, allows
from dralab.simulation.dispatch import begin
from dralab.simulation.engines import placement as experiment
from dralab.simulation.engines.fragmentation import Fragmentation, typical_pods
from dralab.simulation.results import metrics
from dralab.simulation.scenario import scenario
from dralab.simulation.scenario.schedulers import PODS
from dralab.simulation.workloads import openb
from dralab.simulation.workloads.openb import GpuNode, GpuPod, PodRequest

PUBLISHED = {
    "01-Random": ("random", 0.8, 1.0),
    "02-DotProd": ("dotprod", 0.8, 1.0),
    "03-GpuClustering": ("clustering", 0.8, 1.5),
    "04-GpuPacking": ("packing", 0.8, 1.5),
    "05-BestFit": ("bestfit", 0.5, 1.0),
    "06-FGD": ("fgd", 0.5, 1.0),
}
SHAPES = st.one_of(
    st.builds(PodRequest, st.integers(0, 40_000), st.integers(1, 999), st.just(1), st.just("")),
    st.builds(
        PodRequest,
        st.integers(0, 40_000),
        st.just(1000),
        st.sampled_from([1, 2, 4]),
        st.sampled_from(["", "A", "A|B", "C"]),
    ),
    st.builds(PodRequest, st.integers(0, 40_000), st.just(0), st.just(0), st.just("")),
)


def plain_fragmentation(typical, cpu, gpus, model):
    """The definition, word for word."""
    total = 0.0
    for request, count in typical.items():
        fitting = [left for left in gpus if left >= request.milli]
        refused = (
            request.gpus == 0
            or not allows(request.models, model)
            or len(fitting) < request.gpus
            or cpu < request.cpu
        )
        total += count * (sum(gpus) if refused else sum(g for g in gpus if g < request.milli))
    return total / sum(typical.values())


@pytest.mark.thorough
@given(
    st.lists(SHAPES, min_size=1, max_size=8, unique=True),
    st.lists(
        st.tuples(
            st.integers(0, 50_000),
            st.lists(st.integers(0, 1000), min_size=4, max_size=4),
            st.integers(0, 1),
        ),
        min_size=1,
        max_size=5,
    ),
)
def test_fragmentation_is_what_its_definition_says_and_its_classes_add_up(pod_requests, states):
    typical = {request: 3 + number for number, request in enumerate(pod_requests)}
    fragmentation = Fragmentation(typical, ["A", "B"])
    cpu, gpus, model = (np.array(column) for column in zip(*states, strict=True))
    found = fragmentation.of_states(cpu, gpus, model)
    expected = [plain_fragmentation(typical, c, g, "AB"[m]) for c, g, m in states]
    assert found == pytest.approx(expected)
    classes = fragmentation.classes(cpu, gpus, model)
    assert sum(classes.values()) == pytest.approx(gpus.sum())
    assert sum(classes.values()) - classes["q3"] == pytest.approx(sum(expected))


def test_fragmentation_of_a_state_is_the_same_to_the_last_bit_beside_any_others(testdata):
    pods = openb.read_pods(testdata("alibaba-openb", "openb_pod_list_default.csv"))
    fragmentation = Fragmentation(typical_pods(pod.request for pod in pods), ["A"])
    chance = np.random.default_rng(1)
    cpu, gpus = chance.integers(0, 128_000, 300), chance.integers(0, 11, (300, 8)) * 100
    model = np.zeros(300, dtype=np.int64)
    together = fragmentation.of_states(cpu, gpus, model)
    for size in (1, 2, 7):
        parts = [slice(start, start + size) for start in range(0, 300, size)]
        apart = [fragmentation.of_states(cpu[part], gpus[part], model[part]) for part in parts]
        assert (np.concatenate(apart) == together).all()


NODES = [
    GpuNode(
        f"n{i}", 32_000 + 8000 * (i % 5), 200_000, (0, 2, 4, 1)[i % 4], "AB"[i % 2] if i % 4 else ""
    )
    for i in range(24)
]
TYPICAL = [
    GpuPod(f"t{i}", request, 0)
    for i, request in enumerate([PodRequest(4000, 500, 1, ""), PodRequest(9000, 1000, 2, "")])
]


@pytest.mark.thorough
@settings(max_examples=15, deadline=None)
@given(
    st.lists(st.tuples(SHAPES, st.integers(0, 60_000)), max_size=60),
    st.sampled_from(sorted(PODS)),
)
def test_scores_kept_over_changes_equal_scores_computed_anew(pods, name):
    placing = experiment.PlacementExperiment(NODES, TYPICAL, policy=name, seed=1)
    state, table = placing.state, placing.state.table
    for number, (shape, memory) in enumerate(pods):
        request = shape._replace(labels="")
        pod = changed(placing.kind(GpuPod("p", request, memory)), uid=f"p{number}")
        demand = state.demands.demand_of(pod)
        anew = scores.total(state, pod, passing(state, pod, demand))[0]
        kept = KindScores(state) if state.kinds is None else state.kinds
        state.kinds = kept
        held = kept.scores_of(kind_of(pod, demand), pod, demand)
        assert (np.where(anew == -np.inf, -1, anew) == held).all()
        found = placement(state, pod)
        if found is None:
            why = kept.reasons_of(kind_of(pod, demand), pod, demand)
            assert why == refusal(state, pod, demand, {}, {}).reasons
            continue
        row = table.row_of[found.node]
        before = table.gpus.left[row].copy()
        state.assume_placement(found)
        assert len(found.pod.shares.taken if found.pod.shares else ()) == request.gpus
        assert (before - table.gpus.left[row]).sum() == request.demand
        rest = [table.free(each)[row] for each in ("cpu", "memory")]
        assert min(*rest, *table.gpus.left[row]) >= 0
        placing.ledger.catch_up()
        columns, ledger = table.shared_gpus(), placing.ledger
        alone = ledger.fragmentation.of_states(table.free("cpu"), columns.left, columns.model)
        assert ledger.lost_on(np.arange(table.size)) == pytest.approx(alone)
        assert ledger.catch_up() == pytest.approx(alone.sum())


def test_a_pod_takes_the_fullest_gpu_that_is_enough_and_gives_it_back():
    gpus = SharedGpus()
    gpus.put_node(0, 3, "A")
    for part in (700, 300):
        gpus.take(0, Shares(1, part, "", gpus.chosen(0, Shares(1, part))), 1)
    assert gpus.left[0].tolist() == [0, 1000, 1000]
    assert gpus.chosen(0, Shares(2, 1000)) == (1, 2)
    gpus.take(0, Shares(1, 700, "", (0,)), -1)
    assert (gpus.left[0].tolist(), gpus.chosen(0, Shares(1, 500))) == ([700, 1000, 1000], (0,))


def test_typical_pods_are_those_of_the_published_trace(testdata):
    pods = openb.read_pods(testdata("alibaba-openb", "openb_pod_list_default.csv"))
    typical = typical_pods(pod.request for pod in pods)
    assert len({pod.request for pod in pods}) == 91
    assert len(typical) == 35
    first = list(typical.items())[:3]
    total = sum(typical.values())
    assert [(s.cpu, s.milli, s.gpus, round(n / total, 5)) for s, n in first] == [
        (3152, 810, 1, 0.13482),
        (11300, 1000, 1, 0.11254),
        (11400, 1000, 1, 0.07713),
    ]


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("trace", "pods", "demand"),
    [
        ("default", 8152, 6_086_800),
        ("gpushare40", 8152, 5_641_250),
        ("multigpu20", 8324, 7_086_800),
    ],
)
def test_the_traces_hold_what_is_known_of_them(testdata, trace, pods, demand):
    found = openb.read_pods(testdata("alibaba-openb", f"openb_pod_list_{trace}.csv"))
    assert (len(found), sum(pod.request.demand for pod in found)) == (pods, demand)
    nodes = openb.read_nodes(testdata("alibaba-openb", "openb_node_list_gpu_node.csv"))
    assert (len(nodes), sum(n.gpus for n in nodes), sum(n.cpu for n in nodes)) == (
        1213, 6212, 107_018_000,
    )  # fmt: skip


def means(testdata, trace, seeds=(42, 43, 44)):
    folder = testdata("alibaba-openb")
    nodes = openb.read_nodes(folder / "openb_node_list_gpu_node.csv")
    pods = openb.read_pods(folder / f"openb_pod_list_{trace}.csv")
    found = {}
    for name, (policy, *_) in PUBLISHED.items():
        tables = [experiment.run(nodes, pods, policy=policy, seed=s).table() for s in seeds]
        keys = [key for key in tables[0] if "@" in key]
        found[name] = {key: fmean(table[key] for table in tables) for key in keys}
    return found


def check(testdata, trace):
    found = means(testdata, trace)
    with testdata("alibaba-openb", "expected_means.csv").open() as file:
        rows = [r for r in csv.DictReader(file) if r["workload"] == f"openb_pod_list_{trace}"]
    assert len(rows) == 6
    for row in rows:
        name = row["policy"]
        _, alloc, frag = PUBLISHED[name]
        for key in ("alloc_pct@100", "alloc_pct@130"):
            assert found[name][key] == pytest.approx(float(row[f"{key}_mean"]), abs=alloc), name
        key = "frag_pct_of_idle@50"
        assert found[name][key] == pytest.approx(float(row[f"{key}_mean"]), abs=frag), name
    at = {PUBLISHED[name][0]: values["alloc_pct@130"] for name, values in found.items()}
    assert max(at, key=at.get) == "fgd"
    assert min(at, key=at.get) == "random"
    return at


@pytest.mark.thorough
def test_one_run_of_fgd_on_the_default_trace_is_near_the_published_mean(testdata):
    folder = testdata("alibaba-openb")
    nodes = openb.read_nodes(folder / "openb_node_list_gpu_node.csv")
    pods = openb.read_pods(folder / "openb_pod_list_default.csv")
    name, alloc, _ = PUBLISHED["06-FGD"]
    found = experiment.run(nodes, pods, policy=name, seed=42).table()
    with testdata("alibaba-openb", "expected_means.csv").open() as file:
        row = next(r for r in csv.DictReader(file) if r["policy"] == "06-FGD")
    key = "alloc_pct@130"
    assert found[key] == pytest.approx(float(row[f"{key}_mean"]), abs=alloc)


@pytest.mark.conformance
def test_the_published_means_are_met_on_the_default_trace_and_in_their_order(testdata):
    at = check(testdata, "default")
    assert at["random"] < at["dotprod"] < min(at["clustering"], at["packing"])
    assert max(at["clustering"], at["packing"]) < at["bestfit"] < at["fgd"]


@pytest.mark.conformance
@pytest.mark.parametrize("trace", ["gpushare40", "multigpu20"])
def test_the_published_means_are_met_on_the_other_traces(testdata, trace):
    check(testdata, trace)


def test_clones_end_at_the_wanted_demand_and_a_fuller_trace_loses_pods():
    pods = [GpuPod(f"p{i}", PodRequest(1000, 500, 1, ""), 0) for i in range(10)]
    grown = experiment.inflated(pods, 10_000, 1.3, experiment.Randomness(1))
    assert sum(pod.request.demand for pod in grown) == 13_000
    assert sorted(p.name for p in grown[:10]) == [p.name for p in pods]
    shrunk = experiment.inflated(pods, 2000, 1.3, experiment.Randomness(1))
    assert sum(pod.request.demand for pod in shrunk) == 2500


NODE_LINES = "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,1000,2,T4\nn1,8000,1000,1,P100\n"
POD_LINES = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec\np0,1000,10,1,500,\np1,1000,10,1,1000,P100\n"


@pytest.fixture
def files(tmp_path):
    (tmp_path / "nodes.csv").write_text(NODE_LINES)
    (tmp_path / "tiny.csv").write_text(POD_LINES)
    return tmp_path


def command(files, *more):
    return CliRunner().invoke(
        main,
        [
            "simulate",
            "run",
            str(files / "nodes.csv"),
            str(files / "tiny.csv"),
            *more,
        ],
    )


def test_the_command_prints_the_promised_keys_the_same_for_the_same_seed(files):
    first = command(files, "--scheduler", "fgd", "--seed", "7", "-o", "json")
    assert first.exit_code == 0, first.output
    assert list(json.loads(first.stdout)) == [
        "workload", "policy", "seed", "alloc_pct@100", "alloc_pct@130",
        *(f"frag_pct_of_idle@{n}" for n in (50, 75, 90, 95, 100)),
        *(f"frag_pct_of_total@{n}" for n in (100, 130)),
    ]  # fmt: skip
    assert json.loads(first.stdout)["workload"] == "tiny"
    assert command(files, "--scheduler", "fgd", "--seed", "7").stdout == first.stdout


@pytest.mark.parametrize(
    ("line", "where", "problem"),
    [
        ("p9,1000,10,1", "", "must have 6 cells and has 4"),
        ("p9,-1,10,1,500,", "cpu_milli", "from 0"),
        ("p9,1000,10,one,500,", "num_gpu", "not a number"),
        ("p9,1000,10,1,0,", "gpu_milli", "above 0"),
        ("p9,nan,10,1,500,", "cpu_milli", "whole number"),
        (",1000,10,1,500,", "name", "empty"),
        ("p0,1000,10,1,500,", "name", "is already in line 2"),
    ],
)
def test_a_broken_line_is_named_and_skipped_when_lenient(files, line, where, problem):
    path = files / "tiny.csv"
    path.write_text(POD_LINES + line + "\n")
    with pytest.raises(InputError) as caught:
        openb.read_pods(path)
    assert (caught.value.line, caught.value.where) == (4, where)
    assert problem in str(caught.value)
    problems = InputProblems(lenient=True)
    assert len(openb.read_pods(path, problems=problems)) == 2
    result = command(files, "--lenient")
    assert result.exit_code == 0
    assert "skipped: " in result.stderr
    assert command(files).exit_code == 2


SCENARIO = "fleet: {openb: nodes.csv}\nworkload: {openb: pods.csv, inflate: 1.3}\nscheduler: fgd\nseed: 7\n"


@pytest.fixture
def trace(tmp_path):
    """A small trace, as a scenario."""
    (tmp_path / "nodes.csv").write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,64000,262144,2,A\nn1,64000,262144,4,B\n"
    )
    rows = [f"p{i},{1000 * (i % 3 + 1)},1024,{1 + i % 2},{(500, 1000)[i % 2]}" for i in range(9)]
    header = "name,cpu_milli,memory_mib,num_gpu,gpu_milli\n"
    (tmp_path / "pods.csv").write_text(header + "\n".join(rows) + "\n")
    (tmp_path / "scenario.yaml").write_text(SCENARIO)
    return tmp_path


def test_a_scenario_places_a_trace_as_the_command_does(trace):
    found = begin(scenario.load(trace / "scenario.yaml")).go()
    nodes, pods = openb.read_nodes(trace / "nodes.csv"), openb.read_pods(trace / "pods.csv")
    outcome = experiment.run(nodes, pods, policy="fgd", seed=7)
    assert found.own_numbers == outcome.numbers()
    assert metrics.metrics_of(found)["alloc_pct@100"] == outcome.table()["alloc_pct@100"]
    assert [sample.gpu for sample in found.samples] == [m.allocated for m in outcome.measures]
    assert metrics.metrics_of(found)["rejected"] == sum(not m.placed for m in outcome.measures) > 0
    done = CliRunner().invoke(
        main,
        ["simulate", "run", str(trace / "nodes.csv"), str(trace / "pods.csv"),
         "--seed", "7", "-o", "json"],
    )  # fmt: skip
    assert json.loads(done.stdout) == outcome.table() | {"workload": "pods"}


def test_a_placement_that_was_stopped_goes_on_to_the_same_end(trace):
    loaded = scenario.load(trace / "scenario.yaml")
    part = begin(loaded)
    assert not part.go(stop=lambda: True).complete
    part.save(trace / "checkpoint")
    assert begin(loaded, trace / "checkpoint").go() == begin(loaded).go()


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("scheduler: fgd", "scheduler: easy", "for built-in policies, random, dotprod"),
        ("scheduler: fgd", "scheduler: dralab", "for built-in policies, random, dotprod"),
        ("seed: 7", "stop: {at: 5}", "without time: no faults"),
        ("seed: 7", "faults: [{node: n0, at: 1}]", "without time: no faults"),
        ("inflate: 1.3", "inflate: 0", "inflate: must be above 0"),
        ("{openb: nodes.csv}", "{nodes: [{name: n, cpu: 1}]}", "no node has a GPU"),
    ],
)
def test_what_a_placement_cannot_have_is_refused(trace, old, new, problem):
    (trace / "scenario.yaml").write_text(SCENARIO.replace(old, new))
    with pytest.raises(InputError, match=problem):
        begin(scenario.load(trace / "scenario.yaml"))
