"""`dralab mcp`: its tools answer as the commands do, change nothing, and are bounded."""

import sys

import pytest
import yaml
from click.testing import CliRunner

import dralab
from builders import claim, device, device_class, pod, pool, request, worker
from dralab.cli.main import main
from dralab.lab import agent_tools
from dralab.lab.agent_tools import AgentTools

SCENARIO = """
fleet: {nodes: [{name: n, count: 2, cpu: 8, gpus: 2}]}
workload: {pods: [{name: p, count: 60, cpu: 1, gpus: 1, duration: 10m}]}
"""


def objects():
    return [
        worker("n1"),
        device_class("gpu"),
        *pool("n1", device("d0"), node="n1"),
        claim("two", request("r", "gpu", count=2)),
        pod("waits", claims={"g": "two"}),
    ]


@pytest.fixture
def tools():
    return AgentTools(lambda: dralab.open(objects()))


def test_questions_are_answered_as_by_the_laboratory(tools):
    lab = dralab.open(objects())
    assert tools.explain() == {
        "nodes": 1, "waits": {"count": len(lab.pending), "first": list(lab.pending)},
    }  # fmt: skip
    found = tools.explain("default/waits")
    assert found["code"] == lab.explain("waits").code
    assert found["page"] == str(lab.explain("waits"))
    assert tools.what_if(add_nodes={"n1": 1})["summary"] == str(lab.what_if(add_nodes={"n1": 1}))
    assert tools.plan({"n1": 2.0})["waits"]["count"] == len(lab.plan({"n1": 2.0}).waits)


def test_what_is_unknown_or_too_much_is_refused(tools):
    with pytest.raises(dralab.UnknownObject, match="no pod or claim 'nobody'"):
        tools.explain("nobody")
    with pytest.raises(ValueError, match="add_nodes: at most 10000 nodes in all"):
        tools.what_if(add_nodes={"n1": 10_001})
    with pytest.raises(ValueError, match=r"scheduler: 'x\.py:Y' is not one of"):
        tools.simulate(SCENARIO, scheduler="x.py:Y")
    with pytest.raises(ValueError, match="scenario: is longer than"):
        tools.simulate("#" * (1 << 19))


@pytest.mark.thorough
def test_a_simulation_is_bounded_and_names_no_file_or_program(tools, monkeypatch):
    found = tools.simulate(SCENARIO, scheduler="firstfit")
    assert found["complete"]
    assert found["numbers"]["ended"] == 60
    assert (found["tasks"]["count"], len(found["tasks"]["first"])) == (60, 50)
    with pytest.raises(dralab.InputError, match=r"there is no file 'x\.csv' beside it"):
        tools.simulate("fleet: {openb: x.csv}\nworkload: {pods: []}")
    with pytest.raises(dralab.InputError, match="is outside the folder"):
        tools.simulate("fleet: {openb: /etc/passwd}\nworkload: {pods: []}")
    with pytest.raises(ValueError, match="external programs are not started here"):
        tools.simulate(SCENARIO + "scheduler: external\nexternal: {command: touch /tmp/x}\n")
    endless = SCENARIO.replace("count: 60", "count: 5000000")
    monkeypatch.setattr(agent_tools, "SECONDS", 1)
    with pytest.raises(ValueError, match="needs more than 1 s of CPU time and 4 GiB"):
        tools.simulate(endless)


def test_standard_input_is_the_connection():
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    done = CliRunner().invoke(main, ["mcp", "-f", "-"])
    assert done.exit_code == 2
    assert "standard input is the connection; name a file" in done.stderr


@pytest.mark.conformance
def test_a_client_of_the_protocol_asks_over_standard_input(tmp_path):
    pytest.importorskip("mcp", reason="the extra mcp is not installed")
    import asyncio

    from mcp import Client, StdioServerParameters

    path = tmp_path / "cluster.yaml"
    path.write_text(yaml.safe_dump_all(objects()))
    program = StdioServerParameters(
        command=sys.executable, args=["-m", "dralab", "mcp", "-f", str(path)]
    )

    async def ask():
        async with Client(program) as client:
            listed = await client.list_tools()
            answer = await client.call_tool("explain", {"name": "waits"})
            unknown = await client.call_tool("explain", {"name": "nobody"})
            other = await client.call_tool("plan", {"shapes": ["h100"]})
            return [tool.name for tool in listed.tools], answer, unknown, other

    names, answer, unknown, other = asyncio.run(ask())
    assert names == ["explain", "what_if", "plan", "simulate"]
    assert "DRA" in answer.content[0].text
    assert unknown.is_error
    assert "no pod or claim 'nobody'" in unknown.content[0].text
    assert other.is_error
    assert "shapes" in other.content[0].text
