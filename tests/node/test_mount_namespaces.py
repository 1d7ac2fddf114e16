"""Containers with mount namespaces: what they find at their paths, and what stays as it was."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest

from dralab.contracts.cdi_cache import ContainerConfig
from dralab.node import mount_launcher
from dralab.node.cgroups import ControlGroups
from dralab.node.containers import ContainerExit, ContainerStart, ContainerStartError, VolumeFile
from dralab.node.images import image_map, with_image_volumes
from dralab.node.logs import ContainerLog
from dralab.node.mount_namespaces import NodePaths, problem, service_of, spec_of
from dralab.node.privileges import Privileges
from dralab.node.process_runtime import ProcessRuntime
from dralab.runtime.live import LiveEngine
from waiting import PATIENCE

needs_namespaces = pytest.mark.skipif(
    sys.platform != "linux" or problem() != "", reason="no mount namespaces on this machine"
)


NOBODY = 65534
needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.getuid() != 0 or problem() != "", reason="not root"
)


def start(argv, *, mounts=(), devices=(), files=None, working_dir="", env=None, **more):
    config = ContainerConfig(
        env={"PATH": os.environ["PATH"], **(env or {})},
        mounts=list(mounts),
        device_nodes=list(devices),
    )
    return ContainerStart(
        namespace="ns",
        pod="p",
        pod_uid="uid",
        node="n1",
        name="c",
        image="x",
        argv=argv,
        working_dir=working_dir,
        config=config,
        annotations={},
        ends=False,
        log=ContainerLog(),
        files=lambda volume: (files or {}).get(volume, {}),
        **more,
    )


def host(source, target, **more):
    return {"hostPath": str(source), "containerPath": target, "volume": "v", **more}


@pytest.fixture
def node(tmp_path):
    return NodePaths.of(tmp_path / "n1", tmp_path / "cdi")


@pytest.fixture
def bench(node):
    class Bench:
        def __init__(self):
            self.engine = LiveEngine(name="bench", workers=2)
            self.runtime = ProcessRuntime(
                self.engine,
                {"mapped": ["/usr/bin/env"]},
                lambda _node: {"KUBECONFIG": "/admin"},
                lambda _node: node,
                service_of("https://127.0.0.1:6443"),
            )
            self.engine.start()

        def run(self, script, **more):
            """Run a script, or the image's command, to its end; return its code and output."""
            ended = []
            begun = start(["sh", "-c", script] if script else [], **more)
            container = self.runtime.start(begun, ended.append)
            assert container.wait(PATIENCE)
            while not ended:
                self.engine._changed.acquire()
                self.engine._changed.release()
            return ended[0].code, "\n".join(line for _, line in begun.log.read()[0])

    made = Bench()
    yield made
    made.runtime.stop()
    made.engine.stop()


def test_the_paths_of_a_node_are_those_of_its_own_directory(node, tmp_path):
    assert node.here("/var/lib/kubelet") == f"{tmp_path}/n1"
    assert node.here("/var/lib/kubelet/plugins/x.sock") == f"{tmp_path}/n1/plugins/x.sock"
    assert node.here("/var/lib/kubelet2") == "/var/lib/kubelet2"
    assert node.here("/var/run/cdi/a.yaml") == f"{tmp_path}/cdi/a.yaml"
    assert node.here("/run/nri/nri.sock") == f"{tmp_path}/n1/nri/nri.sock"
    # What a driver writes there outlives a reboot, and is not seen by other nodes.
    assert node.here("/etc/cdi/a.yaml") == f"{tmp_path}/n1/etc-cdi/a.yaml"
    assert node.here("/etc/cdi2") == "/etc/cdi2"


def test_a_missing_host_path_is_made_only_below_the_node(node, tmp_path):
    own = tmp_path / "container"
    own.mkdir()
    mounts = [host("/var/lib/kubelet/plugins", "/plugins"), host("/no/such/path", "/other")]
    spec = spec_of(start(["true"], mounts=mounts), node, own, {})
    assert [each["source"] for each in spec["binds"]] == [
        f"{tmp_path}/n1/plugins",
        f"{tmp_path}/n1/host-paths/no/such/path",
    ]
    assert (tmp_path / "n1/plugins").is_dir()
    assert not Path("/no/such").exists()


def test_containers_of_a_node_share_a_host_path_that_the_machine_has_not(node, tmp_path):
    """As device nodes and mounts of CDI, too: one container makes them for others."""
    made = []
    for name in ("faker", "plugin"):
        own = tmp_path / name
        own.mkdir()
        mounts = [host("/no/such/root", "/root-of-fakes"), host("/no/../no/such/root/x", "/x")]
        device = {"path": "/dev/card0", "hostPath": "/no/such/root/dev/card0"}
        begun = start(["true"], mounts=mounts, devices=[device, {"path": "/dev/null"}])
        made.append(spec_of(begun, node, own, {}))
    place = f"{tmp_path}/n1/host-paths/no/such/root"
    for spec in made:
        assert [each["source"] for each in spec["binds"]][:2] == [place, f"{place}/x"]
        found = {"path": "/dev/card0", "hostPath": f"{place}/dev/card0"}
        assert spec["devices"] == [found, {"path": "/dev/null"}]
    assert node.found("/no/../../../such") == tmp_path / "n1/host-paths/such"


@needs_namespaces
def test_mounts_are_at_the_paths_that_the_pod_names(bench, tmp_path):
    (tmp_path / "driver").mkdir()
    (tmp_path / "driver" / "version").write_text("550\n")
    code, written = bench.run(
        "cat /driver-root/version /etc/made/up/version /config/key;"
        "echo x > /var/lib/kubelet/plugins/x; touch /driver-root/no; ls /usr/bin | grep -c .",
        mounts=[
            host("/var/lib/kubelet/plugins", "/var/lib/kubelet/plugins"),
            host(tmp_path / "driver", "/driver-root", readOnly=True),
            host(tmp_path / "driver", "/etc/made/up"),
            {"hostPath": "", "containerPath": "/config", "volume": "config"},
        ],
        files={"config": {"key": VolumeFile(b"value\n")}},
    )
    lines = written.splitlines()
    assert lines[:3] == ["550", "550", "value"]
    assert "Read-only file system" in lines[3]
    assert int(lines[4]) > 10
    assert (tmp_path / "n1" / "plugins" / "x").read_text() == "x\n"
    assert code == 0
    # The machine is as it was.
    assert not Path("/driver-root").exists()
    assert not Path("/etc/made").exists()


@needs_namespaces
def test_programs_find_the_server_by_their_account_and_not_as_the_administrator(bench):
    ended, begun = [], replace(start([]), image="mapped")
    assert bench.runtime.start(begun, ended.append).wait(PATIENCE)
    written = [line for _, line in begun.log.read()[0]]
    assert "KUBERNETES_SERVICE_PORT=6443" in written
    assert not [line for line in written if "KUBECONFIG" in line]


@needs_namespaces
def test_one_mount_can_lie_in_another_and_be_a_file(bench, tmp_path):
    (tmp_path / "outer").mkdir()
    (tmp_path / "file").write_text("inner\n")
    _, written = bench.run(
        "cat /outer/sub/file",
        mounts=[host(tmp_path / "file", "/outer/sub/file"), host(tmp_path / "outer", "/outer")],
    )
    assert written == "inner"


@needs_namespaces
def test_device_nodes_are_the_machine_s_or_are_made(bench):
    devices = [
        {"path": "/dev/nvidia0", "hostPath": "/dev/null"},
        {"path": "/dev/made/up", "type": "c", "major": 1, "minor": 5},
        {"path": "/dev/missing"},
    ]
    _, written = bench.run(
        "test -c /dev/nvidia0 && echo bound; head -c 1 /dev/made/up | wc -c; ls /dev/null",
        devices=devices,
    )
    assert "bound" in written
    assert "device /dev/missing is missing on this machine" in written
    assert "/dev/null" in written
    if os.getuid() == 0:
        assert "\n1\n" in written
    assert not Path("/dev/nvidia0").exists() or Path("/dev/nvidia0").is_char_device()


@needs_namespaces
def test_a_command_in_a_container_is_in_its_namespace(bench, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "file").write_text("seen\n")
    begun = start(
        ["sh", "-c", "echo up; sleep 60"],
        mounts=[host(tmp_path / "data", "/data-of-it")],
        working_dir="/data-of-it",
    )
    container = bench.runtime.start(begun, lambda _: None)
    while not begun.log.read()[0]:
        pass
    found = []
    code = container.run(
        ["sh", "-c", "pwd; cat file"], lambda *each: found.append(each), timeout=150
    )
    assert b"".join(data for _, data in found) == b"/data-of-it\nseen\n"
    assert code == 0
    container.stop(0)


@needs_namespaces
def test_a_program_that_is_not_there_is_named_in_the_log(bench):
    begun = start(["/no/such/program"])
    ended = []
    container = bench.runtime.start(begun, ended.append)
    assert container.wait(PATIENCE)
    why = 'exec: "/no/such/program": stat /no/such/program: no such file or directory'
    assert why in begun.log.read()[0][0][1]
    while not ended:
        pass
    assert ended == [ContainerExit(128, "StartError", why)]


@needs_namespaces
def test_a_container_has_the_name_and_the_files_of_its_pod(bench):
    etc = {"/etc/hosts": "10.0.0.7\tweb\n", "/etc/resolv.conf": "nameserver 1.2.3.4\n"}
    own = {"hostPath": "", "containerPath": "/etc/resolv.conf", "volume": "v", "subPath": "mine"}
    _, written = bench.run(
        "hostname; cat /etc/hosts /etc/resolv.conf; printf gone > /dev/termination-log",
        etc=etc,
        hostname="web",
        message_path="/dev/termination-log",
        mounts=[own],
        files={"v": {"mine": VolumeFile(b"nameserver 5.6.7.8\n")}},
    )
    assert written == "web\n10.0.0.7\tweb\nnameserver 5.6.7.8"


@needs_namespaces
@pytest.mark.parametrize("sub_path", ["out", "out/etc", "in/out"])
def test_a_part_of_a_volume_is_not_one_of_the_machine(bench, tmp_path, sub_path):
    """CVE-2017-1002101: a first container leaves a link, a second one mounts what it leads to."""
    volume = {"hostPath": "", "containerPath": "/v", "volume": "v"}
    (tmp_path / "secret").mkdir()
    script = f"ln -s {tmp_path}/secret /v/out; mkdir /v/in; ln -s ../out /v/in/out"
    assert bench.run(script, mounts=[volume])[0] == 0
    with pytest.raises(ContainerStartError, match="leads out of"):
        bench.run("touch /p/new", mounts=[{**volume, "containerPath": "/p", "subPath": sub_path}])
    assert list((tmp_path / "secret").iterdir()) == []


@needs_namespaces
def test_a_link_within_a_volume_is_followed(bench):
    volume = {"hostPath": "", "containerPath": "/v", "volume": "v"}
    assert bench.run("mkdir /v/a; echo x > /v/a/x; ln -s a /v/b", mounts=[volume])[0] == 0
    part = {**volume, "containerPath": "/p", "subPath": "b"}
    assert bench.run("cat /p/x", mounts=[part]) == (0, "x")


@needs_namespaces
def test_a_part_that_becomes_a_link_before_it_is_mounted_is_refused(tmp_path):
    """CVE-2021-25741: what was looked at is exchanged before the mount."""
    (tmp_path / "v" / "a").mkdir(parents=True)
    bind = {"source": f"{tmp_path}/v/a/b", "within": f"{tmp_path}/v", "target": "/p"}
    (tmp_path / "v" / "a").rmdir()
    (tmp_path / "v" / "a").symlink_to("/")
    with pytest.raises(OSError, match="has become a link"):
        mount_launcher.pinned(bind)
    with pytest.raises(OSError, match="has become a link"):
        mount_launcher.pinned({**bind, "source": f"{tmp_path}/v/a"})


@needs_root
def test_a_container_runs_as_the_user_and_with_the_groups_of_its_pod(bench):
    volume = {"hostPath": "", "containerPath": "/v", "volume": "v"}
    empty = {"hostPath": "", "containerPath": "/e", "volume": "e"}
    privileges = Privileges(
        user=1001, group=1002, groups=(1003, 1004), fs_group=1004, escalates=False
    )
    _, written = bench.run(
        "id -u; id -g; id -G; cat /v/key; stat -L -c '%a %u %g' /v/key /e; touch /e/x && "
        "stat -c %g /e/x; grep NoNewPrivs /proc/self/status; pwd",
        privileges=privileges,
        mounts=[volume, empty],
        files={"v": {"key": VolumeFile(b"secret\n", 0o400, 1001)}},
    )
    assert written.splitlines() == [
        "1001", "1002", "1002 1003 1004", "secret", "440 1001 1004", "2777 0 1004", "1004",
        "NoNewPrivs:\t1", "/",
    ]  # fmt: skip


@needs_root
def test_only_a_privileged_container_keeps_all_capabilities(bench):
    script = "grep CapEff /proc/self/status | cut -f 2"
    _, few = bench.run(script)
    assert int(few, 16) == 0xA80425FB  # containerd's own set
    _, some = bench.run(script, privileges=Privileges(capabilities=("NET_ADMIN",)))
    assert int(some, 16) == 1 << 12
    _, every = bench.run(script, privileges=Privileges(privileged=True))
    assert int(every, 16) > 0xFFFFFFFF


@needs_root
def test_what_a_container_writes_into_tmp_is_its_own(bench, tmp_path):
    (tmp_path / "there").write_text("machine's\n")
    code, written = bench.run(
        f"cat {tmp_path}/there; echo own > {tmp_path}/new; rm {tmp_path}/there"
    )
    assert (code, written) == (0, "machine's")
    assert [each.name for each in tmp_path.iterdir() if each.is_file()] == ["there"]


@needs_root
def test_the_root_of_a_container_can_be_written_and_is_its_own(bench):
    script = "echo own > /made-here && mkdir -p /etc/own/x && rm /etc/passwd; cat /made-here"
    assert bench.run(script) == (0, "own")
    assert Path("/etc/passwd").exists()
    assert not Path("/made-here").exists()
    assert bench.run("cat /made-here")[0] == 1


@pytest.fixture
def image(tmp_path):
    """The files of an image: a program, a file of its own, one that the machine has as well."""
    files = tmp_path / "image"
    for path, text in (("tool", "#!/bin/sh\necho $0 $*\n"), ("data/x", "X"), ("etc/passwd", "P")):
        (files / path).parent.mkdir(parents=True, exist_ok=True)
        (files / path).write_text(text)
    (files / "tool").chmod(0o755)
    (files / "data" / "link").symlink_to("/data/deep")
    (files / "data" / "deep").mkdir()
    return files


@needs_root
def test_the_files_of_an_image_lie_over_the_machine_s(bench, image, tmp_path):
    bench.runtime.images = image_map([f"x={image}/. /tool of the image"])
    assert bench.run("") == (0, "/tool of the image")
    assert bench.run("pwd") == (0, "/")
    assert bench.run("pwd", working_dir="/data") == (0, "/data")
    (tmp_path / "v").write_text("V")
    script = "cat /data/x /etc/passwd /data/deep/v && test -e /etc/group && echo changed > /data/x"
    mount = host(tmp_path / "v", "/data/link/v")
    assert bench.run(script, mounts=[mount]) == (0, "XPV")
    assert (image / "data" / "x").read_text() == "X"


@needs_root
def test_a_volume_of_an_image_has_its_files_to_be_read(bench, image):
    bench.runtime.images = image_map([f"registry/data:v1={image}/."])
    mount = {"hostPath": "", "containerPath": "/v", "volume": "v", "image": "registry/data:v1"}
    part = {**mount, "containerPath": "/part", "subPath": "data"}
    code, written = bench.run("cat /v/data/x /part/x; touch /v/new", mounts=[mount, part])
    assert (code, written[:2]) == (1, "XX")
    assert not (image / "new").exists()
    with pytest.raises(ContainerStartError, match="volume v has no none"):
        bench.run("true", mounts=[{**mount, "subPath": "none"}])
    (image / "out").symlink_to("/etc")
    with pytest.raises(ContainerStartError, match="leads out of"):
        bench.run("true", mounts=[{**mount, "subPath": "out"}])
    with pytest.raises(ContainerStartError, match='image "other" of volume v has no files on this'):
        bench.run("true", mounts=[{**mount, "image": "other"}])


@needs_namespaces
def test_a_part_of_an_image_that_becomes_a_link_before_it_is_mounted_is_refused(
    node, image, tmp_path
):
    mount = {"hostPath": "", "containerPath": "/p", "volume": "v", "image": "i", "subPath": "data"}
    images = image_map([f"i={image}/."])
    begun = with_image_volumes(start(["true"], mounts=[mount]), images)
    bind = spec_of(begun, node, tmp_path, {})["binds"][0]
    assert mount_launcher.pinned(bind).startswith("/proc/self/fd/")
    (image / "data").rename(image / "before")
    (image / "data").symlink_to("/etc")
    with pytest.raises(OSError, match="has become a link"):
        mount_launcher.pinned(bind)


@needs_namespaces
def test_a_root_can_be_read_only(bench):
    empty = {"hostPath": "", "containerPath": "/e", "volume": "e"}
    code, written = bench.run(
        "touch /e/x && echo > /dev/null && echo ok; touch /file; touch /etc/file",
        privileges=Privileges(read_only_root=True),
        mounts=[empty],
    )
    assert code == 1
    assert written.splitlines()[0] == "ok"
    assert written.count("Read-only file system") == 2


@needs_root
def test_mounts_over_what_the_machine_has_can_be_written_in_a_read_only_root(bench, tmp_path):
    # The missing one has the entries of /usr be shown one by one, /usr/share among them.
    mounts = [host(tmp_path, path) for path in ("/usr/share", "/usr/no-such-directory")]
    code, written = bench.run(
        "touch /usr/share/x && echo ok", privileges=Privileges(read_only_root=True), mounts=mounts
    )
    assert (code, written) == (0, "ok")
    assert (tmp_path / "x").exists()


@pytest.fixture
def groups():
    found = ControlGroups.found()
    if found is None:
        pytest.skip("no control groups on this machine")
    yield found
    found.close()


@needs_root
def test_a_container_has_control_groups_of_its_own(bench, groups):
    bench.runtime.groups = groups
    resources = {"requests": {"cpu": "250m"}, "limits": {"cpu": "500m", "memory": "64Mi"}}
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    files = (
        ["cpu.max", "memory.max"] if unified else ["cpu/cpu.shares", "memory/memory.limit_in_bytes"]
    )
    script = "; ".join(f"cat /sys/fs/cgroup/{name}" for name in files)
    code, written = bench.run(f"{script}; cut -d: -f3 /proc/self/cgroup", resources=resources)
    assert code == 0
    assert written.splitlines()[:2] == (["50000 100000"] if unified else ["256"]) + ["67108864"]
    assert "/" in written.splitlines()[2:]
    left = Path("/sys/fs/cgroup").glob(f"**/dralab-{os.getpid()}/pod*")
    assert list(left) == []


@pytest.fixture
def place_of_nobody():
    """A directory of another user: pytest's own are for this one alone."""
    with tempfile.TemporaryDirectory() as name:
        os.chown(name, NOBODY, NOBODY)
        yield Path(name)


@needs_root
def test_a_container_of_a_user_who_is_not_root_can_write_to_devices(node, place_of_nobody):
    """Where something is mounted below /dev, as the termination log is, it is made anew."""
    python = shutil.which("python3", path="/usr/bin:/usr/local/bin")
    if python is None:
        pytest.skip("no Python that other users may run")
    spec = spec_of(start([], message_path="/dev/termination-log"), node, place_of_nobody, {})
    file, script = place_of_nobody / "spec", place_of_nobody / "launcher.py"
    file.write_text(json.dumps(spec))
    script.write_text(Path(mount_launcher.__file__).read_text())
    command = "echo x > /dev/null && echo x > /dev/termination-log && id -u && stat -c %a / /dev"
    found = subprocess.run(
        [python, str(script), str(file), "sh", "-c", command],
        user=NOBODY, group=NOBODY, extra_groups=[], capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "unshare" in found.stderr:
        pytest.skip("users may make no namespaces on this machine")
    assert (found.returncode, found.stderr) == (0, "")
    assert found.stdout.split() == ["0", "755", "755"]
