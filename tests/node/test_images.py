"""What the image map makes of a container's command and arguments."""

import os

import pytest

from dralab.node.containers import ContainerConfig, ContainerStart
from dralab.node.images import ImageMapError, image_map, mapped
from dralab.node.logs import ContainerLog


def start(command=(), args=()):
    return ContainerStart(
        namespace="ns",
        pod="p",
        pod_uid="uid",
        node="n1",
        name="c",
        image="box:1",
        argv=[*command, *args],
        args=args,
        working_dir="",
        annotations={},
        ends=False,
        log=ContainerLog(),
        config=ContainerConfig(env={}, mounts=[], device_nodes=[]),
    )


# Kubernetes' table of entry point, default command, `command` and `args`.
@pytest.mark.parametrize(
    ("entry", "command", "args", "runs"),
    [
        ("-- sh", [], [], ["sh"]),
        ("-- sh -i", [], [], ["sh", "-i"]),
        ("-- sh", [], ["sleep", "9"], ["sleep", "9"]),
        ("-- sh", ["ls"], [], ["ls"]),
        ("-- sh", ["ls"], ["-l"], ["ls", "-l"]),
        ("sh", [], [], ["sh"]),
        ("sh", [], ["-c", "x"], ["sh", "-c", "x"]),
        ("sh", ["ls"], ["-l"], ["ls", "-l"]),
        ("", [], ["sleep", "9"], ["sleep", "9"]),
    ],
)
@pytest.mark.parametrize("kind", ["/", "/."])
def test_a_default_command_gives_way_to_arguments_an_entry_point_takes_them(
    tmp_path, kind, entry, command, args, runs
):
    images = image_map([f"box={tmp_path}{kind} {entry}"])
    found = mapped(start(command, args), images)
    assert found is not None
    assert list(found.argv) == runs


def test_a_default_command_has_words(tmp_path):
    with pytest.raises(ImageMapError, match=r"box: no command after --: write .*/\. -- COMMAND"):
        image_map([f"box={tmp_path}/. --"])


@pytest.mark.parametrize("kind", ["pipe", "link", "device"])
def test_a_directory_of_maps_has_files_alone(tmp_path, kind):
    folder, secret = tmp_path / "maps", tmp_path / "secret.yaml"
    folder.mkdir()
    secret.write_text("x: [sh]")
    if kind == "pipe":
        os.mkfifo(folder / "a.yaml")
    else:
        (folder / "a.yaml").symlink_to(secret if kind == "link" else "/dev/zero")
    with pytest.raises(ImageMapError, match=r"a\.yaml: it is a"):
        image_map([f"@{folder}"])
    if kind == "link":
        (folder / "a.yaml").unlink()
        (folder / "a.yaml").symlink_to("b.yaml")
        (folder / "b.yaml").write_text("x: [sh]")
        assert image_map([f"@{folder}"]) == {"x": ["sh"]}
