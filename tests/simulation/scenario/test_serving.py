"""Services whose replicas follow their requests, workloads of several parts, gangs in one domain."""

import pytest

from dralab.scenarios.errors import InputError
from dralab.scheduling import group_placement
from dralab.simulation import dispatch
from dralab.simulation.scenario import scenario as scenarios

HOUR = 3600 * 1_000_000_000
FLEET = "fleet: {nodes: [{name: n, count: 8, cpu: 64, gpus: 8}]}\nscheduler: firstfit\n"
HOURLY = "[" + ", ".join(["0"] * 8 + ["10"] * 8 + ["25"] * 4 + ["10"] * 4) + "]"
SERVICE = (
    FLEET
    + "workload:\n  serving:\n"
    + "  - {name: chat, over: 1d, every: 1h, requests: HOURLY, tokens: {context: 1000, generated: 200}, groups: GROUPS}\n"
)
PREFILL = "{name: prefill, of: context, rate: 12500, load: 1, gpus: 8, cpu: 8}"
DECODE = "{name: decode, of: generated, rate: 1250, load: 0.8, gpus: 8, gang: 2, startup: 5m}"


def load(folder, text, **changes):
    path = folder / "scenario.yaml"
    path.write_text(text)
    return scenarios.load(path, **changes)


def service(folder, requests=HOURLY, groups=f"[{PREFILL}]"):
    return load(folder, SERVICE.replace("HOURLY", requests).replace("GROUPS", groups)).pods()


def spans(pods):
    return sorted((pod.arrives // HOUR, pod.until // HOUR) for pod in pods)


def test_replicas_come_and_go_with_the_requests_of_the_hour(tmp_path):
    # 10 requests of 1000 tokens a second are 10,000: one replica; 25,000 would need exactly two,
    # and the Poisson law makes some hours a little busier than that.
    found = spans(service(tmp_path))
    assert found[0] == (0, 24)
    assert found[1][0] == 16
    assert all(first >= 16 and last <= 20 for first, last in found[1:])


def test_a_replica_stays_until_it_was_not_needed_for_a_while(tmp_path):
    text = SERVICE.replace("HOURLY", HOURLY).replace("GROUPS", f"[{PREFILL}]")
    pods = load(tmp_path, text.replace("every: 1h", "every: 1h, stay: 2h")).pods()
    assert max(last for first, last in spans(pods) if first) == 22
    assert len(pods) <= len(load(tmp_path, text).pods())


def test_groups_follow_different_parts_of_the_load(tmp_path):
    pods = service(tmp_path, groups=f"[{PREFILL}, {DECODE}]")
    decode = [pod for pod in pods if "decode" in pod.name]
    # 25 requests generate 5,000 tokens a second; a replica is to do 1,000 of its 1,250.
    at_noon = [pod for pod in decode if pod.arrives <= 12 * HOUR < pod.until]
    at_peak = [pod for pod in decode if pod.arrives <= 17 * HOUR < pod.until]
    assert len(at_noon) in {2 * 2, 2 * 3}
    assert len(at_peak) in {2 * 5, 2 * 6}
    assert {pod.gang for pod in at_noon} == {pod.name[:-2] for pod in at_noon}
    assert all(pod.startup == 300 * HOUR // 3600 for pod in decode)


def test_the_mean_of_a_day_is_as_given_and_the_seed_decides_the_rest(tmp_path):
    group = "[{name: all, rate: 1, load: 1, gpus: 1, least: 0}]"
    pods = service(tmp_path, requests="30", groups=group)
    busy = sum(pod.until - pod.arrives for pod in pods) / (24 * HOUR)
    assert busy == pytest.approx(30.5, abs=0.5)  # half a replica is one
    text = SERVICE.replace("HOURLY", "30").replace("GROUPS", group)
    assert load(tmp_path, text, seed=0).pods() == pods
    assert load(tmp_path, text, seed=1).pods() != pods


def test_a_service_takes_the_requests_of_an_azure_trace_again_and_again(tmp_path):
    rows = ["TIMESTAMP,ContextTokens,GeneratedTokens"]
    rows += [f"2023-11-16 18:{15 + n // 6:02}:{n % 6 * 10:02}.6805900,700,30" for n in range(60)]
    rows += [f"2023-11-16 18:{25 + n // 60:02}:{n % 60:02}.5,700,30" for n in range(1200)]
    (tmp_path / "azure.csv").write_text("\n".join(rows) + "\n")
    text = SERVICE.replace(
        "requests: HOURLY, tokens: {context: 1000, generated: 200}", "azure: azure.csv"
    )
    text = text.replace("every: 1h", "every: 10m").replace("over: 1d", "over: 1h")
    group = "[{name: all, of: context, rate: 100, load: 1, gpus: 1}]"
    pods = load(tmp_path, text.replace("GROUPS", group)).pods()
    minutes = sorted((pod.arrives // (HOUR // 60), pod.until // (HOUR // 60)) for pod in pods)
    # A request each ten seconds, then one a second: 70 and 700 tokens a second.
    assert minutes == [(0, 60), *[(10, 20)] * 6, *[(30, 40)] * 6, *[(50, 60)] * 6]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("soon,1,1", "azure.csv:2: TIMESTAMP: 'soon' is not a time"),
        ("2023-11-16 18:15:46,many,1", "azure.csv:2: ContextTokens: 'many' is not a number"),
        ("2023-11-16 18:15:46,1", "azure.csv:2: must have 3 cells and has 2"),
        ("2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1", "not in the order of their times"),
        ("", "azure.csv: there are no requests"),
    ],
)
def test_a_trace_that_cannot_be_read_says_where(tmp_path, row, message):
    (tmp_path / "azure.csv").write_text(f"TIMESTAMP,ContextTokens,GeneratedTokens\n{row}\n")
    text = SERVICE.replace(
        "requests: HOURLY, tokens: {context: 1000, generated: 200}", "azure: azure.csv"
    )
    with pytest.raises(InputError) as caught:
        load(tmp_path, text.replace("GROUPS", f"[{PREFILL}]"))
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (HOURLY, "[1, 2]", "requests: must be 24 numbers"),
        ("rate: 12500", "rate: 0", "rate: must be above 0"),
        ("rate: 12500", "rate: 0.0001", "rate: needs"),
        ("of: context", "of: tokens", "of: 'tokens' is not one of requests, context, generated"),
        ("load: 1", "least: 5, most: 2", "most: must be at least 5"),
        ("every: 1h", "every: 1ms", "every: makes"),
        ("groups: [", "azure: x.csv, groups: [", "must have exactly one of requests, azure"),
    ],
)
def test_a_service_that_makes_no_sense_is_refused(tmp_path, old, new, message):
    text = SERVICE.replace("HOURLY", HOURLY).replace("GROUPS", f"[{PREFILL}]")
    assert old in text
    with pytest.raises(InputError, match=r"workload\.serving") as caught:
        load(tmp_path, text.replace(old, new))
    assert message in str(caught.value)


# --- several parts --------------------------------------------------------------------------------

MIXED = (
    FLEET
    + """
workload:
  generate:
    - {name: train, count: 3, arrivals: {process: poisson, over: 1d}, duration: 1h, pods: [{gang: 4, gpus: 8}]}
    - {name: batch, count: 5, arrivals: {process: daily, over: 1d}, duration: 1h, pods: [{gpus: 1}]}
  pods: [{name: notebook, duration: 1h, gpus: 1}]
  serving: [{name: chat, over: 1d, requests: 1, groups: [{name: all, rate: 2, gpus: 1}]}]
"""
)


def test_a_workload_has_several_parts_each_with_its_own_chance(tmp_path):
    pods = load(tmp_path, MIXED).pods()
    counts = {
        part: sum(part in pod.name for pod in pods) for part in ("train", "batch", "notebook")
    }
    assert counts == {"train": 12, "batch": 5, "notebook": 1}
    assert any(pod.until for pod in pods)
    other = load(tmp_path, MIXED.replace("count: 3", "count: 2")).pods()
    assert [pod for pod in other if "batch" in pod.name] == [p for p in pods if "batch" in p.name]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("name: batch", "name: train", "generate[0].name: must be given, and be another one"),
        ("name: notebook", "name: train-0-0", "there are two pods 'default/train-0-0'"),
        ("pods: [{gpus: 1}]}", "jobs: [{machines: 1}]}", "a list of generators makes pods"),
        ("pods: [{name: notebook, d", "jobs: [{name: notebook, d", "jobs: cannot be combined"),
    ],
)
def test_parts_that_do_not_go_together_are_refused(tmp_path, old, new, message):
    text = MIXED.replace(old, new).replace("duration: 1h, gpus: 1}]\n  s", "duration: 1h}]\n  s")
    assert old in MIXED
    with pytest.raises(InputError) as caught:
        load(tmp_path, text)
    assert message in str(caught.value)


# --- domains --------------------------------------------------------------------------------------


@pytest.mark.parametrize(("label", "size"), [("rack", 2), ("block", 4)])
@pytest.mark.parametrize("scheduler", ["firstfit", "dralab-fast", "dralab"])
def test_a_gang_goes_to_nodes_of_one_domain(tmp_path, scheduler, label, size):
    text = f"""
fleet: {{nodes: [{{name: n, count: 6, cpu: 8, gpus: 4, domains: {{rack: 2, block: 4}}}}]}}
scheduler: {scheduler}
workload:
  pods: [{{name: first, gpus: 4, cpu: 1, duration: 9h}}]
  generate:
    name: train
    count: 1
    arrivals: {{process: burst}}
    duration: 1h
    pods: [{{gang: 2, gpus: 4, cpu: 1, topology: {label}}}]
"""
    result = dispatch.begin(load(tmp_path, text)).go()
    nodes = {
        int(result.lanes[task.lanes[0]].partition("/")[0].partition("-")[2])
        for task in result.tasks
        if "train" in task.id
    }
    assert len(nodes) == 2
    assert len({node // size for node in nodes}) == 1


def test_nodes_in_a_row_share_the_value_of_a_domain(tmp_path):
    text = "fleet: {nodes: [{name: n, count: 4, cpu: 8, domains: {rack: 3}}]}\n"
    nodes = load(tmp_path, text + "workload: {pods: [{name: p}]}\n").fleet.nodes
    racks = [next(x for x in node.labels if x.startswith("rack=")) for node in nodes]
    assert racks == ["rack=n-0"] * 3 + ["rack=n-1"]


def test_domains_without_gpus_are_not_searched(tmp_path, monkeypatch):
    """A gang that has no room in any rack is refused without a look at single nodes."""
    asked = []
    monkeypatch.setattr(group_placement, "schedule", lambda *each, **_: asked.append(each))
    text = """
fleet: {nodes: [{name: n, count: 6, cpu: 80, gpus: 4, domains: {rack: 2}}]}
workload:
  pods: [{name: first, count: 6, gpus: 4, cpu: 1, duration: 1h}]
  generate: {name: train, count: 1, arrivals: {process: burst}, duration: 1h, pods: [{gang: 2, gpus: 3, topology: rack}]}
stop: {at: 30m}
scheduler: firstfit
"""
    result = dispatch.begin(load(tmp_path, text)).go()
    waiting = [task for task in result.tasks if "train" in task.id]
    assert all("needs 2 pods in one rack; n-2 has room for 0" in task.reason for task in waiting)
    assert asked == []
