"""Programs on asyncio in this process: they meet the faults of a process, and repeat."""

import sys

import pytest

from dralab.kernel.clock import SECOND
from dralab.scenarios.errors import InputError
from dralab.testing import world
from dralab.testing.faults import PlannedFault
from dralab.testing.program_globals import importing_from
from dralab.testing.scenario import load
from dralab.testing.search import search
from dralab.testing.trial import ScenarioFails, expected_end, run_trial
from dralab.virtualtime import unavailable

SCENARIO = """
programs:
  - python: program.py:main
script:
  - apply: wish.yaml
cluster: {controllers: [], scheduler: false}
"""
WISH = """
apiVersion: v1
kind: ConfigMap
metadata: {name: wish, namespace: default}
data: {copy: "yes"}
"""
# It copies ConfigMaps that ask for it, with nothing but a stream of HTTP.
PROGRAM = """
import asyncio, json, os
from urllib.parse import urlsplit
import helper

STARTS = []
PATH = "/api/v1/namespaces/default/configmaps"


async def ask(method, path, body=None):
    there = urlsplit(os.environ["DRALAB_SERVER"])
    reader, writer = await asyncio.open_connection(there.hostname, there.port or 80)
    sent = json.dumps(body).encode() if body else b""
    writer.write(
        f"{method} {there.path}{path} HTTP/1.1\\r\\nHost: x\\r\\nConnection: close\\r\\n"
        f"Content-Type: application/json\\r\\nContent-Length: {len(sent)}\\r\\n\\r\\n".encode() + sent
    )
    code = int((await reader.readline()).split()[1])
    while (await reader.readline()).strip():
        pass
    return code, reader, writer


async def answered(*given):
    code, reader, writer = await ask(*given)
    body = json.loads(await reader.read())
    writer.close()
    return code, body


async def main():
    STARTS.append(helper.STARTS.append(1))
    assert len(STARTS) == len(helper.STARTS) == 1, "something is left of an earlier start"
    while True:
        try:
            code, found = await answered("GET", PATH)
            if code == 200:
                names = {each["metadata"]["name"] for each in found["items"]}
                for each in found["items"]:
                    if "copy" in (each.get("data") or {}):
                        await copy(each["metadata"]["name"], names)
        except OSError:
            pass
        await asyncio.sleep(2)


async def copy(name, names):
    if CAREFUL:
        if f"{name}-copy" not in names:
            await answered("POST", PATH, {"metadata": {"name": f"{name}-copy"}})
    elif not any(each.startswith(f"{name}-") for each in names):
        await answered("POST", PATH, {"metadata": {"generateName": f"{name}-"}})
"""


def scenario(folder, program=PROGRAM, more="", careful=True):
    (folder / "wish.yaml").write_text(WISH)
    (folder / "helper.py").write_text("STARTS = []\n")
    (folder / "program.py").write_text(f"CAREFUL = {careful}\n{program}")
    (folder / "scenario.yaml").write_text(SCENARIO + more)
    return load(folder / "scenario.yaml")


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """The careful program, and how it ends without faults."""
    found = scenario(tmp_path_factory.mktemp("careful"))
    return found, expected_end(found)


def fault(name, verb="create", **given):
    where = {"verb": verb, "resource": "configmaps"} if verb else {}
    return PlannedFault(fault=name, program="program", **where, **given)


def test_a_careful_program_passes_and_a_careless_one_does_not(prepared, tmp_path):
    found = search(*prepared, range(6))
    assert found.failures == {}
    assert len(found.coverage.counts) > 5
    careless = scenario(tmp_path, careful=False)
    expected = expected_end(careless)
    late = fault("late-write", nth=1, duration=3 * SECOND)
    result = run_trial(careless, expected, [late], 0)
    assert "configmaps default/wish-*: 2 at the end, 1 without faults" in str(result.violations[0])
    again = run_trial(careless, expected, [late], 0)
    assert again.history.entries == result.history.entries


@pytest.mark.parametrize("moment", ["before", "during", "after"])
def test_a_killed_program_starts_with_nothing_and_goes_on(prepared, moment):
    kill = fault("kill", nth=1, moment=moment, duration=SECOND)
    result = run_trial(*prepared, [kill], 0)
    assert result.violations == ()
    told = [entry.text for entry in result.history.entries]
    assert f"is killed {moment} create configmaps default" in told
    assert "starts (incarnation 2)" in told


@pytest.mark.parametrize(
    "happens",
    [
        fault("outage", "", at=4 * SECOND, duration=5 * SECOND),
        fault("expire-credentials", "", at=4 * SECOND, duration=5 * SECOND),
        fault("pause", "", at=4 * SECOND, duration=5 * SECOND),
        fault("slow", nth=1, duration=5 * SECOND),
        fault("refuse", nth=1, code=503),
        fault("lose-answer", nth=1),
    ],
    ids=lambda each: each.fault,
)
def test_what_happens_to_a_process_happens_to_it(prepared, happens):
    result = run_trial(*prepared, [happens], 0)
    assert result.fired == (happens,)
    assert result.violations == ()


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("async def main(): pass", "program returns"),
        ("async def main(): raise SystemExit(3)", "program exits with 3"),
        ("async def main(): {}['x']", "program ends: KeyError: 'x' (program.py:2)"),
        ("import os\nasync def main(): os._exit(1)", "program ends its process"),
        (
            "import threading\nasync def main(): threading.Thread(target=print).start()",
            "a program in this process cannot start threads",
        ),
        (
            "import asyncio\nasync def main():\n  while True: await asyncio.sleep(0)",
            "500 events at one instant: a loop without back-off",
        ),
        (
            "import asyncio\nasync def main(): await asyncio.open_connection('example.com', 443)",
            "nothing listens at example.com:443: a trial has no network but its server",
        ),
    ],
)
def test_a_program_that_cannot_be_tried_is_told_in_a_line(tmp_path, program, told, monkeypatch):
    monkeypatch.setattr(world, "AT_ONE_INSTANT", 500)
    with pytest.raises(ScenarioFails) as failure:
        expected_end(scenario(tmp_path, program))
    assert told in str(failure.value)


def test_what_is_loaded_from_elsewhere_stays_loaded(tmp_path, monkeypatch):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "kept_helper.py").write_text("")
    monkeypatch.syspath_prepend(str(elsewhere))
    folder = tmp_path / "here"
    folder.mkdir()
    (folder / "local_helper.py").write_text("")
    (folder / "operator.py").write_text("import kept_helper, local_helper\n")
    with importing_from(folder):
        exec((folder / "operator.py").read_text(), {})  # noqa: S102 - a file of this test
    assert "kept_helper" in sys.modules
    assert "local_helper" not in sys.modules
    monkeypatch.delitem(sys.modules, "kept_helper")


def test_a_program_that_does_nothing_is_told(tmp_path):
    waiting = "import asyncio\nasync def main(): await asyncio.Event().wait()"
    with pytest.raises(ScenarioFails, match="program sends no request"):
        expected_end(scenario(tmp_path, waiting))


def test_a_program_that_sleeps_in_a_call_lets_time_pass(tmp_path):
    sleeping = PROGRAM.replace("await asyncio.sleep(2)", "__import__('time').sleep(2)")
    found = scenario(tmp_path, sleeping)
    kill = PlannedFault(fault="restart", program="program", at=3 * SECOND, duration=SECOND)
    assert run_trial(found, expected_end(found), [kill], 0).violations == ()


@pytest.mark.skipif(unavailable() is not None, reason=str(unavailable()))
def test_programs_in_this_process_and_commands_do_not_mix(tmp_path):
    more = '  - command: ["true"]\n    name: other\n'
    (tmp_path / "program.py").write_text("async def main(): pass\n")
    file = tmp_path / "scenario.yaml"
    file.write_text(f"programs:\n  - python: program.py:main\n{more}")
    with pytest.raises(InputError, match="name no command beside them"):
        load(file)
