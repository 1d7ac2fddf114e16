"""Nothing that somebody else wrote reaches the terminal as a control character."""

import json
import logging

import pytest
import yaml
from click.testing import CliRunner

import builders
from builders import claim, device, device_class, node, pod, pool, request
from dralab.cli import kubectl_dra
from dralab.cli._output import table_lines
from dralab.cli._terminal import UNSAFE, LogFormatter, echo_json_text, escaped
from dralab.cli.main import main

# Clears the screen, sets the title, one byte CSI, reorders the line, overwrites it.
HOSTILE = "\x1b[2J\x1b]0;owned\x07\x9b1m\u202egpj\r\x7f"
CR = "\r"  # no string of CEL has one
SHOWN = r"\x1b[2J\x1b]0;owned\x07\x9b1m\u202egpj\r\x7f"


def run(*arguments, command=main):
    # With colours, or click would take some of the sequences out itself.
    return CliRunner().invoke(command, list(arguments), color=True, env={"KUBECONFIG": None})


def assert_harmless(result):
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    text = result.stdout + result.stderr
    coloured = text.replace("\x1b[0m", "")
    for number in range(30, 38):
        coloured = coloured.replace(f"\x1b[{number}m", "")
    assert not UNSAFE.findall(coloured)
    return text


def objects():
    gpu = {"key": f"x{HOSTILE}", "value": HOSTILE, "effect": "NoSchedule"}
    condition = {
        "type": "PodScheduled",
        "status": "False",
        "reason": "Unschedulable",
        "message": HOSTILE,
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    waiting = pod("p0", claims={"c": "c0"})
    waiting["metadata"]["annotations"] = {"note": HOSTILE}
    waiting["status"] = {"phase": "Pending", "conditions": [condition]}
    return [
        node(),
        *pool("n1", device("gpu-0", vendor=HOSTILE), driver="gpu.example.com"),
        device_class("gpu", f'device.driver == "{SHOWN}"'),
        claim("c0", request("r0", "gpu", f'device.driver == "{SHOWN}"')),
        waiting,
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": HOSTILE},
            "spec": {"taints": [gpu]},
        },
        {"apiVersion": f"resource.k8s.io/{HOSTILE}", "kind": HOSTILE, "metadata": {"name": "x"}},
    ]


@pytest.fixture(params=["as objects", "with a raw string in CEL"])
def file(tmp_path, monkeypatch, request):
    monkeypatch.chdir(tmp_path)  # where a snapshot is written
    found = objects()
    if request.param != "as objects":
        found = found[:5]
        wanted = builders.request("r0", "gpu", f'device.driver == "{HOSTILE.replace(CR, "")}"')
        found[2:4] = [device_class("gpu"), claim("c0", wanted)]
    path = tmp_path / f"a{HOSTILE.replace('/', '')}.yaml"
    path.write_text(yaml.safe_dump_all(found))
    return str(path)


COMMANDS = [
    "explain",
    "explain -v",
    "explain -o json",
    "explain -o yaml",
    "allocate",
    "allocate -o json",
    "allocate -o yaml",
    "top",
    "top -o json",
    "what-if --remove-node n1",
    "plan moves --all-pending",
    "plan nodes --removable",
    "enumerate allocations p0",
    "enumerate partitions",
    "compare",
    "convert --to v1",
    "convert --to k8srm",
    "validate",
    "validate -o json",
    "snapshot",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_what_objects_say_is_printed_without_control_characters(command, file):
    text = assert_harmless(run(*command.split(), "-f", file))
    assert text


def test_a_string_of_cel_is_shown_escaped(tmp_path):
    path = tmp_path / "a.yaml"
    wanted = request("r0", "gpu", f'device.driver == "{HOSTILE.replace(CR, "")}"')
    shown = [node(), *pool("n1", device("gpu-0")), device_class("gpu"), claim("c0", wanted)]
    path.write_text(yaml.safe_dump_all(shown))
    assert SHOWN.replace(r"\r", "") in assert_harmless(run("explain", "-f", str(path)))


@pytest.mark.parametrize(
    "arguments",
    [
        ["explain", "-f", f"missing{HOSTILE}.yaml"],
        ["explain", "-f", "x", f"--{HOSTILE}"],
        ["explain", "--code", HOSTILE],
        [f"explain{HOSTILE}"],
        ["cel", HOSTILE],
        ["cel", f'"{HOSTILE}"'],
        ["cel", "device.driver", "--attributes", HOSTILE],
        ["simulate", "run", HOSTILE],
        ["simulate", "campaign", HOSTILE],
        ["dst", "run", HOSTILE],
        ["dst", "replay", HOSTILE],
        ["conformance", "cel", HOSTILE],
        ["generate", HOSTILE],
        ["driver", "check", HOSTILE],
        ["driver", "new", HOSTILE],
        ["store", "restore", HOSTILE],
        ["top", "--kubeconfig", HOSTILE],
        ["user", "add", HOSTILE, "--kubeconfig", HOSTILE],
        ["simulate", "program", "--start", HOSTILE, "true"],
    ],
    ids=lambda words: " ".join(words).replace(HOSTILE, "HOSTILE"),
)
def test_errors_quote_what_was_given_without_control_characters(arguments):
    result = run(*arguments)
    assert result.exit_code == 2, result.output
    assert_harmless(result)


def test_kubectls_plugin_prints_in_the_same_way(file):
    assert_harmless(run("why", "-f", file, command=kubectl_dra.main))
    assert_harmless(run("why", "-f", HOSTILE, command=kubectl_dra.main))


def test_cells_of_a_table_stay_in_their_line():
    assert list(table_lines([("NAME", "AGE"), (f"a\n{HOSTILE}", "1")], numbers=[1])) == [
        f"{'NAME'.ljust(len(SHOWN) + 3)}  AGE",
        rf"a\n{SHOWN}    1",
    ]


def test_json_means_the_same_when_it_is_escaped(capsys):
    value = {"a": f"{HOSTILE}\n\tä"}
    echo_json_text(json.dumps(value, ensure_ascii=False))
    printed = capsys.readouterr().out
    assert not UNSAFE.findall(printed)
    assert json.loads(printed) == value


def test_file_names_that_are_not_utf8_are_printed():
    assert escaped(b"a\xff".decode(errors="surrogateescape")) == r"a\udcff"


def test_logs_have_no_control_characters():
    record = logging.LogRecord("a", logging.WARNING, "a.py", 1, "from %s", (HOSTILE,), None)
    assert LogFormatter().format(record) == f"from {SHOWN}"
