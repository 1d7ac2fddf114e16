"""The process runtime, with real and short processes."""

import os
import signal
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path

import pytest

import waiting
from dralab.contracts.cdi_cache import ContainerConfig
from dralab.node.container_volumes import SHARED_MEMORY
from dralab.node.containers import ContainerStart, ContainerStartError, ExecSession, VolumeFile
from dralab.node.images import ImageMapError, image_map
from dralab.node.logs import ContainerLog
from dralab.node.process_runtime import ProcessRuntime
from dralab.runtime.live import LiveEngine

PATH = "/usr/local/bin:/usr/bin:/bin"
LONG = 20.0


class Bench:
    def __init__(self, engine):
        self.engine = engine
        self.runtime = ProcessRuntime(engine)

    def run(self, *argv, env=None, mounts=(), **fields):
        """Start a container; return it, its log, and what waits for its exit."""
        config = ContainerConfig(env={"PATH": PATH, **(env or {})}, mounts=list(mounts))
        given = {"image": "busybox", "name": "c", "working_dir": "", "limits": {}, **fields}
        start = ContainerStart(
            namespace="default", pod="p", pod_uid="uid-1", node="n", argv=argv, config=config,
            annotations={}, ends=False, log=ContainerLog(), **given,
        )  # fmt: skip
        over, exits = threading.Event(), []

        def ended(found):
            exits.append(found)
            over.set()

        container = self.runtime.start(start, ended)

        def exit_of():
            assert over.wait(LONG)
            return exits[0]

        return container, start.log, exit_of


@pytest.fixture
def bench():
    engine = LiveEngine()
    engine.start()
    found = Bench(engine)
    yield found
    found.runtime.stop()
    engine.stop()


def lines(log):
    return [line for _, line in log.read()[0]]


def until(log, word):
    """Wait until a log holds a word."""
    there = threading.Event()

    def look():
        if any(word in line for line in lines(log)):
            there.set()

    forget = log.listen(look)
    look()
    assert there.wait(LONG), lines(log)
    forget()


@pytest.mark.parametrize(
    ("script", "code", "reason"),
    [
        ("exit 0", 0, "Completed"),
        ("exit 3", 3, "Error"),
        ("kill -KILL $$", 137, "Error"),
        ("kill -TERM $$", 143, "Error"),
    ],
)
def test_the_exit_code_is_the_command_s(bench, script, code, reason):
    _, _, exit_of = bench.run("sh", "-c", script)
    assert (exit_of().code, exit_of().reason) == (code, reason)


def test_both_outputs_go_into_the_log_in_order(bench):
    _, log, exit_of = bench.run("sh", "-c", "echo one; echo two >&2; printf three")
    exit_of()
    assert lines(log) == ["one", "two", "three"]
    assert log.ended


def test_the_end_of_a_file_is_the_termination_message(bench):
    script = "printf gone > $DRALAB_ROOT/dev/termination-log; exit 1"
    _, _, exit_of = bench.run("sh", "-c", script, message_path="/dev/termination-log")
    assert exit_of().message == "gone"
    script = "printf '%05000dend' 0 > $DRALAB_ROOT/x/y"
    _, _, exit_of = bench.run("sh", "-c", script, message_path="/x/y")
    assert exit_of().message == "0" * 4093 + "end"


def test_a_link_is_not_followed_to_a_termination_message(bench, tmp_path):
    (tmp_path / "secret").write_text("theirs")
    script = f"ln -s {tmp_path}/secret $DRALAB_ROOT/dev/termination-log"
    _, _, exit_of = bench.run("sh", "-c", script, message_path="/dev/termination-log")
    assert exit_of().message == ""


def test_a_container_sees_its_own_environment_and_nothing_of_the_server_s(bench, monkeypatch):
    monkeypatch.setenv("SECRET_OF_THE_SERVER", "yes")
    _, log, exit_of = bench.run("env", env={"FAKE_DEVICE_0": "gpu-1"})
    exit_of()
    found = dict(line.split("=", 1) for line in lines(log))
    assert found["FAKE_DEVICE_0"] == "gpu-1"
    assert set(found) <= {"PATH", "FAKE_DEVICE_0", "HOME", "TMPDIR", "DRALAB_ROOT", "PWD", "_"}
    assert not Path(found["HOME"]).exists()


def test_names_that_no_shell_knows_stay_in_the_environment(bench):
    env = {"data-1": "a b", "x.y": "$(c)", "plain": "1"}
    _, log, exit_of = bench.run("env", env=env)
    assert exit_of().code == 0
    found = dict(line.split("=", 1) for line in lines(log))
    assert env.items() <= found.items()
    assert "LC_CTYPE" not in found


def test_it_runs_in_a_directory_of_its_own_that_is_gone_afterwards(bench):
    _, log, exit_of = bench.run("sh", "-c", "pwd; touch here; ls", working_dir="/work")
    exit_of()
    where, listed = lines(log)
    assert where.endswith("/work")
    assert listed == "here"
    assert not Path(where).exists()


def test_mounts_are_links_and_an_empty_volume_is_shared(bench, tmp_path):
    (tmp_path / "model").write_text("H100")
    mounts = [
        {"hostPath": str(tmp_path), "containerPath": "/etc/gpu"},
        {"hostPath": "", "containerPath": "/cache", "volume": "cache"},
    ]
    script = 'cat "$DRALAB_ROOT/etc/gpu/model"; echo; '
    first, log, _ = bench.run(
        "sh", "-c", script + "echo hot > cache/x; echo done; sleep 60", mounts=mounts
    )
    until(log, "done")
    _, other, exit_of = bench.run("sh", "-c", "cat cache/x", mounts=mounts, name="second")
    assert exit_of().code == 0
    assert lines(log)[0] == "H100"
    assert lines(other) == ["hot"]
    first.stop(0)


def test_what_a_pod_shares_goes_with_the_pod(bench):
    mounts = [{"hostPath": "", "containerPath": "/cache", "volume": "cache"}]
    _, log, exit_of = bench.run("sh", "-c", "cd cache; touch x; pwd -P", mounts=mounts)
    exit_of()
    assert (Path(lines(log)[0]) / "x").exists()
    bench.runtime.forget_pod("uid-1")
    assert not Path(lines(log)[0]).exists()


def test_a_mount_below_a_mount_writes_nothing_onto_the_machine(bench, tmp_path):
    mounts = [
        {"hostPath": str(tmp_path), "containerPath": "/a"},
        {"hostPath": "/etc", "containerPath": "/a/b"},
    ]
    bench.run("true", mounts=mounts)[2]()
    assert list(tmp_path.iterdir()) == []


def test_sigterm_comes_first_and_sigkill_when_the_grace_is_over(bench):
    willing, log, exit_of = bench.run("sh", "-c", "trap 'exit 5' TERM; echo up; sleep 60 & wait")
    until(log, "up")
    willing.stop(30)
    assert exit_of().code == 5
    deaf, log, exit_of = bench.run("sh", "-c", "trap '' TERM; echo up; while :; do sleep 1; done")
    until(log, "up")
    deaf.stop(0.2)
    assert exit_of().code == 137


def test_nothing_outlives_the_first_process(bench):
    _, log, exit_of = bench.run("sh", "-c", "sleep 300 & echo $!; exit 0")
    exit_of()
    pid = int(lines(log)[0])
    assert gone(pid)


def test_a_process_cannot_take_more_memory_than_the_limit(bench):
    script = "bytearray(512 << 20)"
    _, log, exit_of = bench.run(sys.executable, "-c", script, limits={"memory": "128Mi"})
    assert exit_of().code == 1
    assert "MemoryError" in lines(log)[-1]


def test_a_line_without_end_is_cut_and_the_log_is_bounded():
    log = ContainerLog()
    for number in range(1000):
        log.write(0, f"{number:04}" + "x" * 16_380)
    kept, there = log.read()
    assert there == 1000
    assert 500 < len(kept) < 520
    assert kept[-1][1].startswith("0999")
    assert [line[:4] for _, line in log.read(998)[0]] == ["0998", "0999"]


def test_an_image_without_a_command_is_refused_with_what_would_help(bench):
    with pytest.raises(ContainerStartError, match=r"--image-map registry/x:v1=COMMAND"):
        bench.run(image="registry/x:v1")


def test_a_program_that_is_not_there_is_refused(bench):
    with pytest.raises(
        ContainerStartError, match=r'exec: "no-such": executable file not found in /usr'
    ):
        bench.run("no-such")


@pytest.mark.parametrize(
    "key", ["registry:5000/x", "registry:5000/x:v1", "registry:5000/x:v1#c", "registry:5000/x#c"]
)
def test_a_mapped_image_runs_the_program_of_this_machine_with_the_pod_s_args(bench, key):
    bench.runtime.images = {key: ["/bin/echo", "mapped"]}
    bench.runtime.told = lambda _node: {"KUBECONFIG": "/k"}
    _, log, exit_of = bench.run(
        "/in/the/image", "-v", image="registry:5000/x:v1", args=["-v"], env={"A": "1"}
    )
    exit_of()
    assert lines(log) == ["mapped -v"]


def test_only_mapped_images_are_told_of_the_server(bench):
    bench.runtime.images = {"x": ["/usr/bin/env"]}
    bench.runtime.told = lambda _node: {"KUBECONFIG": "/k"}
    _, log, exit_of = bench.run(image="x")
    exit_of()
    assert "KUBECONFIG=/k" in lines(log)
    _, log, exit_of = bench.run("env", image="y")
    exit_of()
    assert "KUBECONFIG=/k" not in lines(log)


@pytest.fixture
def folder(tmp_path):
    """Two programs of one image."""
    for name in ("plugin", "controller"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text(f'#!/bin/sh\necho {name} "$@" $KUBECONFIG\n')
        program.chmod(0o755)
    return f"{tmp_path}/bin/"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["plugin", "-v"], "plugin -v /k"),
        (["controller"], "controller /k"),
        (["/image/plugin", "-x"], "plugin -x /k"),
        (["/bin/echo", "own"], "own"),
        (["sh", "-c", "controller two"], "controller two /k"),
    ],
)
def test_a_mapped_folder_goes_before_path_and_the_command_stays(bench, folder, argv, says):
    bench.runtime.images = {"x": [folder]}
    bench.runtime.told = lambda _node: {"KUBECONFIG": "/k"}
    _, log, exit_of = bench.run(*argv, image="x:v2")
    exit_of()
    assert lines(log) == [says]


@pytest.mark.parametrize(
    ("argv", "args", "says"),
    [
        (["-v"], ["-v"], "plugin serve -v /k"),
        ([], [], "plugin serve /k"),
        (["controller", "-v"], ["-v"], "controller -v /k"),
    ],
)
def test_a_command_after_a_folder_is_for_containers_without_one(bench, folder, argv, args, says):
    bench.runtime.images = image_map([f"x={folder} plugin serve"])
    bench.runtime.told = lambda _node: {"KUBECONFIG": "/k"}
    _, log, exit_of = bench.run(*argv, args=args, image="x:v2")
    exit_of()
    assert lines(log) == [says]


def test_a_command_in_a_container_finds_the_programs_of_its_image(bench, folder):
    bench.runtime.images = {"x": [folder]}
    bench.runtime.told = lambda _node: {"KUBECONFIG": "/k"}
    container, _, _ = bench.run("sleep", "60", image="x")
    said = []
    assert (
        container.run(["/image/plugin", "-x"], lambda _, data: said.append(data), timeout=60) == 0
    )
    assert b"".join(said) == b"plugin -x /k\n"


def test_a_mapped_folder_does_not_say_what_to_run(bench, folder):
    bench.runtime.images = {"x": [folder]}
    with pytest.raises(ContainerStartError, match="container c has no command"):
        bench.run(image="x")


def test_a_directory_of_maps_is_read_by_name(tmp_path):
    (tmp_path / "10-all.yaml").write_text("a: /bin/a\nb: /opt/b/\n")
    (tmp_path / "20-mine.yaml").write_text("a: /bin/mine\n")
    (tmp_path / "notes.txt").write_text("no map")
    (tmp_path / "sub").mkdir()
    assert image_map([f"@{tmp_path}"]) == {"a": ["/bin/mine"], "b": ["/opt/b/"]}
    with pytest.raises(ImageMapError, match="files in this directory"):
        image_map([f"@{tmp_path / 'sub'}"])


def test_the_image_map_is_read_from_options_and_files(tmp_path):
    file = tmp_path / "images.yaml"
    file.write_text("a: /bin/a -x\nb: [/bin/b, 'with space']\n")
    assert image_map(["c:v1=/bin/c 'd e'", f"@{file}"]) == {
        "a": ["/bin/a", "-x"],
        "b": ["/bin/b", "with space"],
        "c:v1": ["/bin/c", "d e"],
    }


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("a", "must be IMAGE=COMMAND"),
        ("a=", "the command is missing"),
        ("a='x", "No closing"),
        ("@/no", "/no"),
    ],
)
def test_a_bad_entry_of_the_image_map_is_named(entry, message):
    with pytest.raises(ImageMapError, match=message):
        image_map([entry])


# --- commands beside it ---------------------------------------------------------------------------


def test_a_command_in_a_container_shares_its_environment_and_keeps_its_outputs_apart(bench):
    container, log, _ = bench.run("sh", "-c", "echo up; sleep 60", env={"A": "1"})
    until(log, "up")
    found = []
    code = container.run(
        ["sh", "-c", "echo out $A; echo err >&2; exit 7"], lambda *each: found.append(each)
    )
    assert code == 7
    assert sorted(found) == [(1, b"out 1\n"), (2, b"err\n")]
    container.stop(0)


def test_a_command_reads_what_is_typed_until_its_end(bench):
    container, _, _ = bench.run("sleep", "60")
    session, found = ExecSession(stdin=True), []
    session.typed(b"one\n")
    session.typed(b"two\n")
    session.typed(None)
    assert container.run(["cat"], lambda *each: found.append(each), session) == 0
    assert b"".join(data for _, data in found) == b"one\ntwo\n"
    container.stop(0)


def test_a_terminal_is_one_and_has_the_size_it_is_told(bench):
    container, _, _ = bench.run("sleep", "60")
    session, found = ExecSession(stdin=True, tty=True), []
    session.resize(91, 17)
    code = container.run(
        ["sh", "-c", "read line; stty size; tty"], lambda *each: found.append(each[1]),
        hold(session, b"go\n"),
    )  # fmt: skip
    assert code == 0
    text = b"".join(found).decode()
    assert "17 91" in text
    assert "/dev/pts/" in text
    container.stop(0)


def hold(session, data):
    session.typed(data)
    return session


def test_a_command_goes_on_without_whoever_asked_for_it(bench):
    container, _, _ = bench.run("sleep", "60")
    session = ExecSession(stdin=True)
    script = "echo up; cat; echo on; exit 3"
    assert container.run(["sh", "-c", script], lambda *_: session.leave(), session) == 3
    container.stop(0)


def test_a_client_that_is_gone_before_its_command_runs_has_left_its_input(bench):
    container, _, _ = bench.run("sleep", "60")
    session, found = ExecSession(stdin=True), []
    session.typed(b"one\n")
    session.leave()
    assert container.run(["cat"], lambda *each: found.append(each), session) == 0
    assert found == [(1, b"one\n")]
    container.stop(0)


def test_few_commands_go_on_without_their_clients(bench, monkeypatch):
    monkeypatch.setattr("dralab.node.process_container.MOST_UNATTENDED", 1)
    container, _, _ = bench.run("sleep", "60")
    first, codes = ExecSession(), []
    first.leave()
    one = threading.Thread(
        target=lambda: codes.append(container.run(["sleep", "60.375"], lambda *_: None, first))
    )
    one.start()
    waiting.until(lambda: any(each.goes_on for each in list(container._commands)))
    second = ExecSession()
    script = ["sh", "-c", "echo up; sleep 60"]
    assert container.run(script, lambda *_: second.leave(), second) == 137
    assert not codes
    container.stop(0)
    one.join(LONG)
    assert codes == [137], "it ended with its container"


def test_so_many_commands_run_in_a_container(bench, monkeypatch):
    monkeypatch.setattr("dralab.node.process_container.MOST_COMMANDS", 1)
    container, _, _ = bench.run("sleep", "60")
    words = ["sleep", "60.625"]
    one = threading.Thread(target=container.run, args=(words, lambda *_: None, ExecSession()))
    one.start()
    waiting.until(lambda: runs(b"sleep\0" + b"60.625\0"))
    with pytest.raises(ContainerStartError, match="1 commands run in the container already"):
        container.run(["true"], lambda *_: None, ExecSession())
    assert container.run(["true"], lambda *_: None) == 0, "a probe"
    container.stop(0)
    one.join(LONG)


def test_a_container_reads_what_attached_ones_type_until_the_first_leaves(bench):
    container, log, exit_of = bench.run(
        "sh", "-c", "printf 'name? '; read name; echo hello $name; cat; echo over",
        stdin=True, stdin_once=True,
    )  # fmt: skip
    session, found = ExecSession(stdin=True), []
    container.attach(lambda *each: found.append(each), session)
    session.typed(b"you\n")
    session.typed(b"rest\n")
    session.leave()
    assert exit_of().code == 0
    assert b"".join(data for _, data in found).endswith(b"hello you\nrest\nover\n")
    assert [line for _, line in log.read()[0]] == ["name? hello you", "rest", "over"]


def test_a_container_whose_input_is_not_for_one_client_goes_on(bench):
    container, log, _ = bench.run("cat", stdin=True)
    for word in ("one", "two"):
        session = ExecSession(stdin=True)
        container.attach(lambda *_: None, session)
        session.typed(word.encode() + b"\n")
        session.leave()
        until(log, word)
    container.stop(0)


def test_a_container_can_have_a_terminal(bench):
    container, log, exit_of = bench.run(
        "sh", "-c", "read line; stty size; tty", stdin=True, stdin_once=True, tty=True
    )
    session, found = ExecSession(stdin=True), []
    forget = container.attach(lambda *each: found.append(each), session)
    session.resize(91, 17)
    session.typed(b"go\n")
    assert exit_of().code == 0
    text = b"".join(data for _, data in found).decode()
    assert "17 91" in text
    assert "/dev/pts/" in text
    forget()
    assert "17 91\r" in [line for _, line in log.read()[0]]


def test_a_long_line_is_cut_into_parts(bench):
    _, log, exit_of = bench.run(
        "sh", "-c", "head -c 40000 /dev/zero | tr '\\0' x; echo; printf end"
    )
    exit_of()
    lines = [line for _, line in log.read()[0]]
    assert [len(line) for line in lines] == [16384, 16384, 7232, 3]
    assert log.unfinished


def test_a_command_that_takes_too_long_is_given_up(bench):
    container, _, _ = bench.run("sleep", "60")
    assert container.run(["sleep", "60.125"], lambda *_: None, timeout=0.1) == 124
    assert not runs(b"sleep\0" + b"60.125\0")
    container.stop(0)


def runs(command):
    """Return whether a process of this machine runs a command."""
    for found in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if found.read_bytes() == command:
                return True
    return False


def test_a_command_is_guarded_as_long_as_it_runs(bench, monkeypatch):
    container, _, _ = bench.run("sleep", "60")
    guarded = []
    monkeypatch.setattr(
        bench.runtime, "watch", lambda group, *, there=True: guarded.append((group, there))
    )
    assert container.run(["true"], lambda *_: None, timeout=LONG) == 0
    [(group, first), (same, last)] = guarded
    assert (same, first, last) == (group, True, False)
    monkeypatch.undo()
    container.stop(0)


def test_commands_end_with_their_container(bench):
    container, _, exit_of = bench.run("sleep", "60")
    code = container.run(["sh", "-c", "echo up; sleep 60"], lambda *_: container.stop(0))
    assert code == 137
    assert exit_of().code == 137


# --- the end of the server --------------------------------------------------------------------------


def test_stopping_the_runtime_ends_everything_and_leaves_no_file(bench):
    _, log, exit_of = bench.run("sh", "-c", "pwd; sleep 300")
    until(log, "/")
    [root] = (each for each in Path(lines(log)[0]).parents if each.name.startswith("dralab-pods-"))
    bench.runtime.stop()
    assert exit_of().code == 143
    assert not root.exists()


def test_processes_do_not_outlive_a_server_that_is_killed(tmp_path):
    script = """
import sys
sys.path.insert(0, sys.argv[1])
from node.test_process_runtime import Bench, lines, until
from dralab.runtime.live import LiveEngine
engine = LiveEngine(); engine.start()
bench = Bench(engine)
daemon = "setsid sh -c 'echo daemon $$; cd /; exec sleep 300' & wait"
container, log, exit_of = bench.run("sh", "-c", "sleep 300 & echo $! $PWD; " + daemon)
until(log, "daemon")
print(*lines(log), flush=True)
exit_of()
"""
    tests = str(Path(__file__).parents[1])
    with subprocess.Popen(
        [sys.executable, "-c", script, tests], stdout=subprocess.PIPE, text=True, cwd=tmp_path
    ) as server:
        pid, directory, _, daemon = server.stdout.readline().split()
        server.send_signal(signal.SIGKILL)
        server.wait()
        assert gone(int(pid))
        assert gone(int(daemon))
    waiting.until(lambda: not Path(directory).exists())


def gone(pid):
    """Wait until a process is gone, or a zombie."""

    def is_gone():
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
            os.kill(pid, 0)
        except (ProcessLookupError, FileNotFoundError):
            return True
        return state == "Z"

    return waiting.until(is_gone)


def test_a_volume_has_its_files(bench):
    mount = {"hostPath": "", "containerPath": "/etc/app", "volume": "v"}

    def files(volume):
        found = {"a": b"one", "deep/b": b"two", "../../c": volume.encode()}
        return {path: VolumeFile(content, 0o440) for path, content in found.items()}

    _, log, exit_of = bench.run(
        "sh", "-c", "cd $DRALAB_ROOT/etc/app; cat a deep/b c; stat -L -c ' %a' a",
        mounts=[mount], files=files,
    )  # fmt: skip
    assert exit_of().code == 0
    assert lines(log) == ["onetwov 440"]
    bad = {"a": VolumeFile(b""), "a/b": VolumeFile(b"")}
    with pytest.raises(ContainerStartError, match="cannot write the files of volume v: "):
        bench.run("true", mounts=[mount], files=lambda _: bad)


def test_the_files_of_a_volume_follow_what_they_show(bench):
    mount = {"hostPath": "", "containerPath": "/etc/app", "volume": "v"}
    script = "cd $DRALAB_ROOT/etc/app; cat a; until [ -e b ]; do sleep 0.05; done; cat b; ls"
    _, log, exit_of = bench.run(
        "sh", "-c", script, mounts=[mount], files=lambda _: {"a": VolumeFile(b"old\n")}
    )
    until(log, "old")
    bench.runtime.refresh_files("uid-1", "v", lambda: {"b": VolumeFile(b"new\n")})
    exit_of()
    assert lines(log) == ["old", "new", "b"]
    bench.runtime.refresh_files("uid-1", "v", lambda: pytest.fail("it is over"))


def test_an_empty_directory_in_memory_is_shared_and_leaves_nothing(bench):
    mount = {"hostPath": "", "containerPath": "/m", "volume": "v", "inMemory": True}
    _, log, exit_of = bench.run("sh", "-c", "cd -P $DRALAB_ROOT/m; pwd; echo 1 > x", mounts=[mount])
    exit_of()
    [place] = lines(log)
    assert Path(place).is_relative_to(SHARED_MEMORY)
    _, log, exit_of = bench.run("sh", "-c", "cat $DRALAB_ROOT/m/x", mounts=[mount])
    exit_of()
    assert lines(log) == ["1"]
    bench.runtime.forget_pod("uid-1")
    assert not Path(place).parent.exists()
