"""Public traces, as tiny files in their published formats."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

import dralab
from dralab.cli.main import main
from dralab.scenarios.errors import InputError, InputProblems
from dralab.simulation.traces import formats as traces

S = 1_000_000_000


def philly_job(name, submitted, *attempts, user="u1", vc="v1"):
    return {
        "status": "Pass",
        "vc": vc,
        "jobid": name,
        "attempts": [
            {
                "start_time": start,
                "end_time": end,
                "detail": [
                    {"ip": f"m{n}", "gpus": [f"gpu{g}" for g in range(gpus)]}
                    for n, gpus in enumerate(servers)
                ],
            }
            for start, end, servers in attempts
        ],
        "submitted_time": submitted,
        "user": user,
    }


PHILLY = json.dumps(
    [
        philly_job(
            "application_1_2", "2017-10-07 01:00:30",
            ("2017-10-07 01:12:09", "2017-10-07 01:13:23", [8]),
            ("2017-10-07 01:20:00", "2017-10-07 02:20:00", [8, 4]),
        ),
        philly_job("application_1_1", "2017-10-07 01:00:00", ("2017-10-07 01:01:00", "2017-10-07 01:01:10", [1])),
        philly_job("application_1_3", "2017-10-07 01:00:00", ("2017-10-07 01:01:00", "None", [1])),
        philly_job("application_1_4", "2017-10-07 01:00:00"),
    ],
    indent=1,
)  # fmt: skip
INSTANCES = [
    {"time": "0", "type": "0", "collection_id": "7", "instance_index": "0", "priority": "200",
     "resource_request": {"cpus": 0.25, "memory": 0.5}},
    {"time": "1000000", "type": 3, "collection_id": "7", "instance_index": "0", "priority": "200",
     "alloc_collection_id": "0", "resource_request": {"cpus": 0.25, "memory": 0.5}},
    {"time": "5000000", "type": "SUBMIT", "collection_id": "7", "instance_index": "1",
     "resource_request": {"cpus": 0.125}},
    {"time": "6000000", "type": "SCHEDULE", "collection_id": "7", "instance_index": "1",
     "resource_request": {"cpus": 0.125}},
    {"time": "9000000", "type": "6", "collection_id": "7", "instance_index": "0",
     "resource_request": None},
    {"time": "9000000", "type": "0", "collection_id": "8", "instance_index": "0",
     "alloc_collection_id": "7", "resource_request": {"cpus": 0.125}},
    {"time": "9000000", "type": "0", "collection_id": "9", "instance_index": "0",
     "resource_request": {"cpus": 0.125}},
]  # fmt: skip
FILES = {
    "cluster_job_log": PHILLY,
    "cluster_machine_list": "machineId,number of GPUs,single GPU mem\nm1,8, 24GB\nm2,2, 12GB\n",
    "pai_task_table.csv": (
        "j1,worker,2.0,Terminated,100.0,160.0,600.0,29.5,50.0,T4\n"
        "j1,ps,1.0,Terminated,100.0,160.0,400.0,10,,\n"
        "j2,tensorflow,1.0,Running,100.0,,400.0,10,200.0,V100\n"
        "j3,tensorflow,1.0,Terminated,200.0,300.0,400.0,10,200.0,V100\n"
    ),
    "pai_machine_spec.csv": "a1,T4,96,512,2\na2,V100,96,512,8\na3,CPU,64,128,0\n",
    "disaggregated_DLRM_trace.csv": (
        "instance_sn,role,app_name,cpu_request,cpu_limit,gpu_request,gpu_limit,rdma_request,rdma_limit,"
        "memory_request,memory_limit,disk_request,disk_limit,max_instance_per_node,creation_time,"
        "scheduled_time,deletion_time\n"
        "instance_0,HN,app_0,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,,,\n"
        "instance_1,CN,app_1,64,64,0,0,1,1,320.0,320.0,255.0,300.0,-1,1435629.0,1435629.0,1435760.0\n"
    ),
    "job_info_df.csv": (
        "job_name,organization,gpu_model,cpu_request,gpu_request,worker_num,submit_time,duration,job_type\n"
        "239255,13,A10,20,1,1,0,900,HP\n437260,57,A10,15,0.5,2,60,41060,Spot\n"
    ),
    "node_info_df.csv": "gpu_model,gpu_capacity_num,cpu_num,node_name\nA10,1,128,0\nA10,2,128,1\n",
    "instance_events-000.json": "\n".join(json.dumps(each) for each in INSTANCES) + "\n",
    "machine_events-000.json": (
        '{"time":"0","machine_id":"3","type":"1","switch_id":"s","capacity":{"cpus":0.5,"memory":0.25}}\n'
        '{"time":"9","machine_id":"3","type":"3","capacity":{"cpus":1.0,"memory":0.5}}\n'
        '{"time":"9","machine_id":"4","type":"2","capacity":null}\n'
    ),
    "slurm-log.csv": (
        "id_job,id_user,time_submit,time_eligible,time_start,time_end,timelimit,nodes_alloc,tres_alloc,state\n"
        '5,u9,1609459200,0,1609459260,1609462860,1440,2,"1=80,2=340000,4=2,5=80,1002=4",3\n'
        "6,u9,1609459230,0,0,1609459240,1440,0,,4\n"
    ),
    "cluster_log.csv": (
        "job_id,user,vc,gpu_num,cpu_num,node_num,state,submit_time,start_time,end_time,duration,queue\n"
        "1425511,uXBbc,vcJkd,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,2020-06-10 04:55:09,36848,0\n"
        "1425512,uVMrF,vchbv,16,64,2,FAILED,2020-06-09 18:41:27,2020-06-09 18:41:27,2020-06-09 18:45:36,249,0\n"
        "1425513,uzqls,vcpDC,0,4,1,CANCELLED,2020-06-09 18:41:28,,,0,0\n"
    ),
    # Lucid's: what it measured of a job is at the end, and there is no number of nodes.
    "cluster_full_log.csv": (
        "job_id,user,vc,jobname,gpu_num,cpu_num,state,submit_time,duration,dataset,model\n"
        "7,uVMrF,vchbv,j,16,64,COMPLETED,2020-09-01 00:00:05,30,ImageNet,ResNet18\n"
    ),
}  # fmt: skip


@pytest.fixture
def trace(tmp_path):
    for name, content in FILES.items():
        (tmp_path / name).write_text(content)
    return tmp_path.joinpath


def pods_of(path):
    return {pod.name: pod for pod in traces.pods(path, InputProblems())}


def told(pods):
    """Return arrival and run time in seconds, CPU in milli, GPUs and their milli, gang."""
    return {
        name: (
            pod.arrives / S, None if pod.duration is None else pod.duration / S,
            pod.request.cpu, pod.request.gpus, pod.request.milli, pod.gang,
        )
        for name, pod in pods.items()
    }  # fmt: skip


def test_a_job_of_philly_is_a_gang_as_in_its_last_whole_attempt(trace):
    pods = pods_of(trace("cluster_job_log"))
    assert told(pods) == {
        "application-1-2-0": (30, 3600, 32_000, 8, 1000, "application-1-2"),
        "application-1-2-1": (30, 3600, 16_000, 4, 1000, "application-1-2"),
        "application-1-1": (0, 10, 4000, 1, 1000, ""),
    }
    assert (pods["application-1-1"].user, pods["application-1-1"].queue) == ("u1", "v1")


def test_instances_of_pai_are_pods_with_parts_of_gpus(trace):
    assert told(pods_of(trace("pai_task_table.csv"))) == {
        "j1-worker-0": (100, 60, 6000, 1, 500, ""),
        "j1-worker-1": (100, 60, 6000, 1, 500, ""),
        "j1-ps": (100, 60, 4000, 0, 0, ""),
        "j3-tensorflow": (200, 100, 4000, 2, 1000, ""),
    }
    nodes = traces.nodes(trace("pai_machine_spec.csv"), InputProblems())
    assert [(n.name, n.cpu, n.gpus, n.model) for n in nodes] == [
        ("a1", 96_000, 2, "T4"), ("a2", 96_000, 8, "V100"), ("a3", 64_000, 0, ""),
    ]  # fmt: skip


def test_a_table_of_pai_may_have_a_header(trace):
    text = FILES["pai_machine_spec.csv"]
    trace("pai_machine_spec.csv").write_text("machine,gpu_type,cap_cpu,cap_mem,cap_gpu\n" + text)
    assert len(traces.nodes(trace("pai_machine_spec.csv"), InputProblems())) == 3


def test_instances_of_dlrm_services_may_have_no_end(trace):
    pods = pods_of(trace("disaggregated_DLRM_trace.csv"))
    assert told(pods) == {
        "instance-0": (0, None, 12_000, 1, 1000, ""),
        "instance-1": (1_435_629, 131, 64_000, 0, 0, ""),
    }
    assert pods["instance-1"].memory == 320 << 30


def test_workers_of_spot_jobs_start_together_and_yield_to_others(trace):
    pods = pods_of(trace("job_info_df.csv"))
    assert told(pods) == {
        "239255": (0, 900, 20_000, 1, 1000, ""),
        "437260-0": (60, 41_060, 15_000, 1, 500, "437260"),
        "437260-1": (60, 41_060, 15_000, 1, 500, "437260"),
    }
    assert pods["239255"].priority > pods["437260-0"].priority
    assert pods["239255"].request.models == "A10"


def test_instances_of_google_have_parts_of_the_largest_machine(trace):
    pods = pods_of(trace("instance_events-000.json"))
    assert told(pods) == {
        "7-0": (0, 8, 25_000, 0, 0, ""),
        "7-1": (5, None, 12_500, 0, 0, ""),
    }
    assert (pods["7-0"].priority, pods["7-0"].memory) == (200, 1 << 39)
    (node,) = traces.nodes(trace("machine_events-000.json"), InputProblems())
    assert (node.name, node.cpu, node.memory) == ("3", 100_000, 1 << 39)


def test_a_job_of_slurm_has_an_equal_part_on_each_node(trace):
    pods = pods_of(trace("slurm-log.csv"))
    assert told(pods) == {
        "5-0": (0, 3600, 40_000, 2, 1000, "5"),
        "5-1": (0, 3600, 40_000, 2, 1000, "5"),
    }
    assert (pods["5-0"].memory, pods["5-0"].request.models) == (170_000 << 20, "volta")


@pytest.mark.parametrize("name", ["cluster_log.csv", "cluster_full_log.csv"])
def test_a_wide_job_of_helios_is_a_gang(trace, name):
    pods = pods_of(trace(name))
    [wide] = {pod.gang for pod in pods.values() if pod.gang}
    seconds = 249 if name == "cluster_log.csv" else 30
    arrives = 26 if name == "cluster_log.csv" else 0
    found = told(pods)
    assert [found.pop(f"{wide}-{n}") for n in (0, 1)] == [
        (arrives, seconds, 32_000, 8, 1000, wide)
    ] * 2
    if found:
        assert found == {"1425511": (0, 36_848, 1000, 1, 1000, "")}
        assert (pods["1425511"].queue, pods["1425511"].user) == ("vcJkd", "uXBbc")


@pytest.mark.parametrize(
    ("name", "old", "new", "message"),
    [
        ("cluster_job_log", "2017-10-07 02:20:00", "soon", ":28: [0].attempts[1].end_time: 'soon' is not a time"),
        ("cluster_job_log", "2017-10-07 02:20:00", "2017-10-07 01:19:00", "end_time: must not be before"),
        ("cluster_job_log", '"detail": [', '"details": [', "[0].attempts[1]: must have `detail`"),
        ("cluster_job_log", '"jobid": "application_1_1"', '"jobid": "application_1_2-0"', "two pods"),
        ("cluster_machine_list", "m1,8", "m1,many", "cluster_machine_list:2: number of GPUs: 'many'"),
        ("pai_task_table.csv", "100.0,160.0,600.0", "100.0,later,600.0", "table.csv:1: end_time: 'later'"),
        ("pai_task_table.csv", ",29.5,50.0,T4", ",29.5,50.0", "table.csv:1: must have 10 cells and has 9"),
        ("disaggregated_DLRM_trace.csv", "1435760.0", "1", ":3: deletion_time: must not be before"),
        ("job_info_df.csv", "HP", "LP", "job_info_df.csv:2: job_type: 'LP' is not one of HP, Spot"),
        ("job_info_df.csv", ",0.5,2,", ",0.5,9999999,", ":3: worker_num: 9999999 must be a whole number"),
        ("instance_events-000.json", '"cpus": 0.25', '"cpus": 25', ":1: resource_request: must have cpus"),
        ("instance_events-000.json", '"time": "5000000"', '"time": "x"', ":3: time: 'x' is not a whole"),
        ("instance_events-000.json", '"SCHEDULE"', '"99"', ":4: type: 99 is not one of 0 to 10"),
        ("instance_events-000.json", '{"time": "9000000", "type": "6"', "{", ":5: is not JSON"),
        ("slurm-log.csv", "1=80,2=340000", "1=80;2=340000", ":2: tres_alloc: '1=80;2=340000"),
        ("slurm-log.csv", "1002=4", "1002=400", ":2: tres_alloc: 200 GPUs a node are more than"),
        ("cluster_log.csv", "2020-06-09 18:41:27", "soon", ":3: submit_time: 'soon' is not a time"),
        ("cluster_log.csv", "vchbv,16,", "vchbv,600,", ":3: gpu_num: 300 GPUs a node are more than"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named_with_file_line_and_field(trace, name, old, new, message):
    assert old in FILES[name]
    trace(name).write_text(FILES[name].replace(old, new))
    read = traces.nodes if "machine" in name else traces.pods
    with pytest.raises(InputError) as caught:
        read(trace(name), InputProblems())
    assert message in str(caught.value)
    try:
        read(trace(name), lenient := InputProblems(lenient=True))
    except InputError as error:  # nothing is left
        assert "there are no" in str(error)  # noqa: PT017
    assert lenient.skipped


PAIRS = [
    ("cluster_job_log", "cluster_machine_list", 2),
    ("pai_task_table.csv", "pai_machine_spec.csv", 4),
    ("job_info_df.csv", "node_info_df.csv", 3),
    ("instance_events-000.json", "machine_events-000.json", 1),
]


@pytest.mark.parametrize(("jobs", "machines", "succeeded"), PAIRS)
def test_simulate_run_takes_the_files_of_a_trace_in_any_order(trace, jobs, machines, succeeded):
    stop = ["--scheduler", "bestfit", "-o", "json"]
    result = CliRunner().invoke(
        main, ["simulate", "run", str(trace(machines)), str(trace(jobs)), *stop]
    )
    assert result.exit_code == 0, result.output
    assert json.loads(result.stdout)["metrics"]["succeeded"] >= succeeded - 1


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["job_info_df.csv"], "is the jobs of a public trace: the machines of a public trace is missing"),
        (["azure.csv"], "has requests of a service: name it in a scenario, as `azure`"),
    ],
)  # fmt: skip
def test_what_a_run_of_a_trace_needs_is_said(trace, names, message):
    trace("azure.csv").write_text("TIMESTAMP,ContextTokens,GeneratedTokens\n")
    result = CliRunner().invoke(main, ["simulate", "run", *(str(trace(name)) for name in names)])
    assert result.exit_code == 2
    assert message in " ".join(result.stderr.split())


def test_a_trace_without_machines_runs_on_a_fleet_of_a_scenario_or_of_python(trace):
    fleet = {
        "nodes": [
            {"name": "n", "count": 2, "cpu": 64, "memory": "512Gi", "gpus": 2, "model": "volta"}
        ]
    }
    run = dralab.simulate(trace("slurm-log.csv"), fleet=fleet, scheduler="firstfit")
    assert run.summary["succeeded"] == 2


@pytest.mark.conformance
@pytest.mark.parametrize("name", ["spot", "dlrm", "philly"])
def test_the_published_files_are_read(name):
    """Where the user has them, below the folder that DRALAB_TRACES names."""
    import os

    files = {
        "spot": "cluster-trace-v2026-spot-gpu/node_info_df.csv",
        "dlrm": "cluster-trace-gpu-v2025/disaggregated_DLRM_trace.csv",
        "philly": "philly-traces/trace-data/cluster_job_log",
    }
    path = Path(os.environ.get("DRALAB_TRACES", "traces")) / files[name]
    if not path.exists():
        pytest.skip(f"{path} is not here: set DRALAB_TRACES to the folder of public traces")
    counts = {"spot": 4278, "dlrm": 23_871, "philly": 90_000}
    read = traces.nodes if name == "spot" else traces.pods
    assert len(read(path, InputProblems())) >= counts[name]
