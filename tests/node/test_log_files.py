"""Logs as files: what is kept of them, and what of a broken one can be read."""

from dralab.kernel.clock import SECOND
from dralab.node.log_files import RuntimeWithLogFiles
from dralab.node.logs import ContainerLog

NOW = 1_700_000_000 * SECOND


class Start:
    """What the runtime is told of a container."""

    namespace, pod, pod_uid, name = "default", "p", "uid", "c"

    def __init__(self):
        self.log = ContainerLog()


class Nothing:
    """A runtime that runs nothing."""

    name, version, ports_at = "nothing", "1", ""

    def listens(self, pod_uid, port):
        return port == 80

    def start(self, start, ended):
        return None

    def forget_pod(self, pod_uid):
        pass


def lines(log):
    return log.read()[0]


def test_each_run_has_a_file_and_the_last_two_are_asked_for(tmp_path):
    runtime = RuntimeWithLogFiles(Nothing(), tmp_path)
    assert runtime.kept("uid", "c") is None
    for number in range(12):  # more than nine: by number, not by letter
        start = Start()
        runtime.start(start, None)
        start.log.write(NOW, f"run {number}")
    assert lines(runtime.kept("uid", "c")) == [(NOW, "run 11")]
    assert lines(runtime.kept("uid", "c", previous=True)) == [(NOW, "run 10")]
    assert runtime.kept("other", "c") is None
    runtime.forget_all_but({"uid"})
    assert runtime.kept("uid", "c") is not None
    runtime.forget_all_but({"other"})
    assert runtime.kept("uid", "c") is None
    runtime.start(Start(), None)
    runtime.forget_pod("uid")
    assert list(tmp_path.iterdir()) == []
    start.log.write(NOW, "too late")


def test_a_file_grows_no_larger_than_it_may(tmp_path):
    runtime, start = RuntimeWithLogFiles(Nothing(), tmp_path, largest=2_000), Start()
    runtime.start(start, None)
    for number in range(500):
        start.log.write(NOW, f"line {number}")
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.*")) < 2_200
    kept = [line for _, line in lines(runtime.kept("uid", "c"))]
    assert kept == [f"line {number}" for number in range(500 - len(kept), 500)]
    assert len(kept) > 20


def test_half_a_line_of_a_killed_process_is_passed_over(tmp_path):
    runtime, start = RuntimeWithLogFiles(Nothing(), tmp_path), Start()
    runtime.start(start, None)
    start.log.write(NOW, "whole")
    (file,) = tmp_path.rglob("*.log")
    with file.open("a") as broken:
        broken.write("2023-11-")
    assert lines(runtime.kept("uid", "c")) == [(NOW, "whole")]
