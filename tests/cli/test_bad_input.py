"""Whatever file a command is given, it says in one line what is wrong, and ends with code 2."""

import os
from pathlib import Path

import pytest
from click.testing import CliRunner

from dralab.cli.main import main
from dralab.fleet import shapes

# One size of the foozer shapes stands for all eight.
SHAPES = [name for name in shapes.names() if not name.startswith("foozer-") or "tiny" in name]
EXAMPLES = Path(__file__).parents[2] / "examples"

FILES = {
    "missing": None,
    "binary": bytes(range(128, 256)) * 4,
    "deep": b"[" * 20_000,
    "truncated": b"apiVersion: v1\nmetadata: {name: x\n",
    "huge number": b"a: " + b"9" * 10_000,
    "several documents": b"[]\n---\n[]\n",
}
COMMANDS = [
    "conformance cel",
    "conformance apiserver",
    "conformance allocator",
    "cel device.driver --attributes",
    "allocate --apply --kubeconfig",
    "scheduler --kubeconfig",
    "allocate -f",
    "explain -f",
    "validate -f",
    "convert --to v1 -f",
    "enumerate partitions -f",
    "simulate run",
    "simulate campaign",
]


def run(*arguments):
    return CliRunner().invoke(main, list(arguments))


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", COMMANDS)
def test_a_file_that_cannot_be_used_is_bad_input(command, name, tmp_path):
    file = tmp_path / "input.yaml"
    if FILES[name] is not None:
        file.write_bytes(FILES[name])
    result = run(*command.split(), str(file))
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert "Error: " in result.stderr


@pytest.mark.parametrize("kind", ["pipe", "link"])
@pytest.mark.parametrize("command", [each for each in COMMANDS if each.endswith(" -f")])
def test_a_pipe_in_a_directory_or_a_link_out_of_it_is_refused(command, kind, tmp_path):
    folder, secret = tmp_path / "given", tmp_path / "secret.yaml"
    folder.mkdir()
    secret.write_text("kind: Secret")
    if kind == "pipe":
        os.mkfifo(folder / "a.yaml")
        why = "it is a named pipe, not a regular file"
    else:
        (folder / "a.yaml").symlink_to(secret)
        why = f"it is a link that leads out of {folder}, to {secret}"
    result = run(*command.split(), str(folder))
    assert result.exit_code == 2
    (line,) = [line for line in result.output.splitlines() if line.startswith("Error: ")]
    assert f"{folder}/a.yaml: " in line
    assert line.endswith(why)


def test_a_yaml_file_that_breaks_off_is_named_with_its_line(tmp_path):
    file = tmp_path / "kubeconfig"
    file.write_bytes(FILES["truncated"])
    result = run("scheduler", "--kubeconfig", str(file))
    assert f"{file}:3: is not YAML" in result.stderr


def test_an_unknown_fleet_is_bad_input_and_the_known_ones_are_listed():
    result = run("up", "--fleet", "abacus", "--data", ":memory:")
    assert result.exit_code == 2
    assert "abacus" in result.stderr
    assert ", ".join(shapes.names()) in result.stderr


@pytest.mark.parametrize("gates", ["Abacus=true", "DRAAdminAccess", "DRAAdminAccess=maybe"])
def test_a_feature_gate_that_is_none_is_bad_input(gates):
    result = run("apiserver", "--feature-gates", gates, "--data", ":memory:")
    assert result.exit_code == 2
    assert gates.partition("=")[0] in result.stderr


def test_a_copy_that_is_not_there_cannot_be_restored(tmp_path):
    result = run("store", "restore", str(tmp_path / "none.db"), "--data", str(tmp_path / "new"))
    assert result.exit_code == 2
    assert "none.db" in result.stderr


def test_what_the_machine_refuses_is_one_line(monkeypatch):
    def refuse(*_, **__):
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr("dralab.cli.generate.click.echo", refuse)
    result = run("generate", "h100")
    assert result.exit_code == 1
    assert result.exception is None or isinstance(result.exception, SystemExit)
    assert "No space left on device" in result.stderr


@pytest.mark.parametrize("command", ["allocate", "explain"])
def test_a_node_that_is_not_there_is_bad_input_and_the_others_are_listed(command):
    result = run(command, "-f", str(EXAMPLES / "20-allocate"), "--node", "nowhere")
    assert result.exit_code == 2
    assert "no node 'nowhere'; known nodes: rack-1, rack-2" in result.stderr


def test_a_shape_that_a_generation_cannot_say_is_refused_instead_of_written_wrongly():
    result = run("generate", "network", "--api", "evolution")
    assert result.exit_code == 2
    assert "use --api v1 or k8srm" in result.stderr


@pytest.mark.parametrize("api", ["v1", "k8srm", "evolution"])
@pytest.mark.parametrize("shape", SHAPES)
def test_whatever_is_generated_is_valid(shape, api, tmp_path):
    made = run("generate", shape, "--nodes", "1", "--api", api, "-o", "json")
    if (shape, api) == ("network", "evolution"):
        return
    file = tmp_path / "made.json"
    file.write_text(made.stdout)
    result = run("validate", "-f", str(file), "--api", api, "--strict")
    assert result.exit_code == 0, result.output


def test_allocations_are_those_of_the_pod_in_its_own_file_though_others_hold_pods_too(tmp_path):
    fleet, pods = (EXAMPLES / "40-k8srm" / name for name in ("fleet.yaml", "pods.yaml"))
    two = tmp_path / "two.yaml"
    documents = [text for text in pods.read_text().split("---\n") if "name: two" in text]
    two.write_text("---\n".join(documents))
    result = run(
        "enumerate", "allocations", "-f", str(fleet), "-f", str(pods), str(two), "--limit", "1"
    )
    assert result.exit_code == 0, result.output
    assert len(result.stdout.split()) == 3  # the node, and two devices


def test_no_device_set_on_an_unknown_node_is_told():
    fleet, pods = (EXAMPLES / "40-k8srm" / name for name in ("fleet.yaml", "pods.yaml"))
    result = run("enumerate", "allocations", "-f", str(fleet), str(pods), "--node", "nowhere")
    assert result.exit_code == 1
    assert "nowhere cannot run the pod" in result.stderr


@pytest.mark.parametrize("api", ["v1", "k8srm", "evolution"])
def test_lists_are_read_as_the_objects_in_them(api, tmp_path):
    file = tmp_path / "list.json"
    file.write_text(run("generate", "sriov", "--nodes", "1", "--api", api, "-o", "json").stdout)
    result = run("validate", "-f", str(file), "--strict")
    assert result.exit_code == 0, result.output
    assert "0 valid" not in result.stdout


def test_a_mistake_in_a_list_is_shown_with_its_own_line(tmp_path):
    file = tmp_path / "list.yaml"
    pool = "  metadata: {name: b}\n  spec:\n    driver: 7\n"
    kind = "- apiVersion: devmgmtproto.k8s.io/v1alpha1\n  kind: DevicePool\n"
    file.write_text(f"apiVersion: v1\nkind: List\nitems:\n{kind}{pool}")
    result = run("validate", "-f", str(file))
    assert result.exit_code == 1, result.output
    assert "  8: invalid: spec.driver" in result.stdout


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["snapshto"], "No such command 'snapshto'; did you mean 'snapshot'?"),
        (["simulate", "rnu"], "No such command 'rnu'; did you mean 'run'?"),
        (["frobnicate"], "No such command 'frobnicate'."),
    ],
)
def test_a_mistyped_command_gets_a_suggestion(words, message):
    result = CliRunner().invoke(main, words)
    assert result.exit_code == 2
    assert message in result.stderr
    assert result.stderr.count("did you mean") == message.count("did you mean")


@pytest.mark.parametrize("command", ["allocate", "validate", "convert --to v1", "compare"])
def test_a_missing_file_is_named_without_the_usage(command):
    result = CliRunner().invoke(main, [*command.split(), "-f", "missing.yaml"])
    assert (result.exit_code, result.stderr) == (
        2,
        "Error: missing.yaml: cannot be read: No such file or directory\n",
    )


@pytest.mark.parametrize(
    ("api", "text", "message"),
    [
        ("k8srm", "- x", "attributes[0]: "),
        ("k8srm", "- foo: 1", "attributes[0].foo: Forbidden: unknown field, known here: name"),
        ("k8srm", "- {stringValue: x}", "attributes[0].name: Required value"),
        (
            "k8srm",
            "x: {string: y}",
            'attributes: Invalid value: {"x":{"string":"y"}}: must be a list',
        ),
        ("k8srm", "- {name: x, quantityValue: q}", "attributes[0].quantityValue: "),
        (
            "evolution",
            "- {name: x, intValue: 1}",
            "attributes[0].intValue: Forbidden: unknown field",
        ),
        ("v1", "- x", "attributes: "),
        ("v1", "x: {int: q}", "attributes[x].int: "),
    ],
)
def test_attributes_in_the_wrong_form_are_told_by_their_field(tmp_path, api, text, message):
    file = tmp_path / "attributes.yaml"
    file.write_text(text)
    arguments = ["cel", "--api", api, "--attributes", str(file), "true"]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 2
    assert result.stderr.startswith(f"Error: {file}: ")
    assert message in result.stderr
    assert "Error(" not in result.stderr


def test_an_expression_that_does_not_compile_comes_with_what_was_meant(monkeypatch, tmp_path):
    scenes = Path(__file__).parent / "scenes"
    wrong = (scenes / "value.yaml").read_text()
    start = wrong.index("expression: ") + len("expression: ")
    end = wrong.index("\n", start)
    file = tmp_path / "wrong.yaml"
    meant = 'device.attributes["gpu.example.com"].architecture == "Hopper"'
    file.write_text(wrong[:start] + 'device.attributes.architecture == "Hopper"' + wrong[end:])
    found = CliRunner().invoke(
        main, ["explain", "-f", str(scenes / "fleet.yaml"), "-f", str(file), "train"]
    )
    assert found.exit_code == 2
    assert f"help: did you mean `{meant}`?" in found.stderr


@pytest.mark.parametrize("target", ["k8srm", "evolution"])
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("kind: ResourceSlice\nmetadata: []\n", "metadata: Invalid value"),
        ("kind: ResourceSlice\nmetadata: {name: a}\nspec: []\n", "spec: Invalid value"),
        (
            "kind: ResourceClaim\nmetadata: {name: a}\nspec: {devices: {requests: [7]}}\n",
            "spec.devices.requests[0]: Invalid value: 7",
        ),
    ],
)
def test_what_is_not_valid_today_is_not_converted(tmp_path, target, text, message):
    path = tmp_path / "a.yaml"
    path.write_text(f"apiVersion: resource.k8s.io/v1\n{text}")
    result = run("convert", "--to", target, "-f", str(path))
    assert result.exit_code == 2
    assert isinstance(result.exception, SystemExit)
    (line,) = result.stderr.splitlines()
    assert message in line
