import re
import socket

import pytest
import yaml
from click.testing import CliRunner

import pages
from dralab.cli.main import main
from dralab.components import example


@pytest.fixture(scope="module")
def shown():
    result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    return result


def test_the_demo_shows_which_pod_got_which_device_where(shown):
    rows = {line.split()[0]: line for line in shown.stdout.splitlines() if line.strip()}
    pair = re.findall(r"gpus: (gpu-\d)", rows["pair"])
    assert "node-b" in rows["pair"]
    assert sorted(pair) == ["gpu-1", "gpu-2"], "the two of one model"
    assert re.search(r"node-[ab] +single-gpu-\w+ +gpu: gpu-\d", rows["single"])
    assert rows["sharer-0"].split()[1:] == rows["sharer-1"].split()[1:]
    assert "vf-" in rows["sharer-0"]


def test_the_demo_says_why_one_pod_stays_pending(shown):
    assert "dreamer waits: no foozer-gpu has memory ≥ 80Gi" in shown.stdout
    assert "help: ask for 48Gi memory or less: 3 devices match, " in shown.stdout


def test_the_readme_shows_what_the_demo_prints(shown):
    readme = (pages.CHECKOUT / "README.md").read_text()
    told = next(block for block in readme.split("```") if block.startswith("\ndreamer waits"))
    # Which node and GPU a pod got depends on which claim was made first.
    told = re.sub("3 devices match, .*", "3 devices match, …", told)
    assert pages.pattern(f"…\n{told}").fullmatch(shown.stdout), shown.stdout


def test_the_demo_takes_a_free_port_where_its_own_is_taken_and_says_so():
    with socket.socket() as taken:
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            taken.bind(("127.0.0.1", 55441))
        except OSError:
            pass  # someone else has it: just as good
        else:
            taken.listen()
        result = CliRunner().invoke(main, ["demo"])
    assert result.exit_code == 0, result.output
    assert "127.0.0.1:55441 is in use" in result.stderr
    assert ": serving on a free port instead" in result.stderr


def test_the_example_can_be_shown_as_it_is():
    result = CliRunner().invoke(main, ["demo", "--show"])
    assert result.stdout == example.text()
    kinds = [obj["kind"] for obj in yaml.safe_load_all(result.stdout) if obj]
    assert kinds.count("Pod") == 5
    assert kinds.count("Node") == 2


def test_a_part_that_does_not_exist_is_refused_with_those_that_do():
    result = CliRunner().invoke(main, ["up", "--without", "brain"])
    assert result.exit_code == 2
    assert "unknown part 'brain'; known: scheduler, controllers, nodes" in result.stderr
