"""k9s, in a terminal: it shows the pods of a cluster, and the log of one."""

import fcntl
import os
import pty
import re
import struct
import subprocess
import termios
import threading
from contextlib import suppress

import pytest

from dralab.runtime.resources import PODS
from operatorlab import NAMESPACE
from waiting import until

pytestmark = [pytest.mark.conformance, pytest.mark.dralab(runtime="process")]
SEQUENCE = re.compile(r"\x1b(\[[0-9;?]*[A-Za-z]|[()][A-Z0-9]|[=>78])")


class Terminal:
    """A program in a terminal, and all that it has shown."""

    def __init__(self, words, environment):
        self.ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 160, 0, 0))
        # It opens its controlling terminal.
        self.process = subprocess.Popen(
            ["setsid", "--ctty", "--wait", *words],
            env=environment, stdin=theirs, stdout=theirs, stderr=theirs,
        )  # fmt: skip
        os.close(theirs)
        self._shown = b""
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        with suppress(OSError):
            while data := os.read(self.ours, 65536):
                self._shown += data

    def shows(self, text):
        return text in SEQUENCE.sub("", self._shown.decode(errors="replace"))

    def type(self, text):
        self._shown = b""
        os.write(self.ours, text)

    def close(self):
        os.close(self.ours)  # it hangs up
        self.process.wait(30)


def test_pods_and_a_log_are_shown(running_cluster, client, operator, kubeconfig, tmp_path):
    _, program = operator("k9s")
    command = ["sh", "-c", "echo hello-from-the-pod; exec sleep 1000"]
    containers = [{"name": "main", "image": "x", "command": command}]
    spec = {"containers": containers, "terminationGracePeriodSeconds": 0}
    client.create(PODS, {"metadata": {"name": "seen"}, "spec": spec}, NAMESPACE)
    environment = {**os.environ, "HOME": str(tmp_path), "TERM": "xterm-256color"}
    environment |= {f"XDG_{each}_HOME": str(tmp_path) for each in ("CONFIG", "DATA", "STATE")}
    (tmp_path / "k9s").mkdir()
    (tmp_path / "k9s/config.yaml").write_text("k9s: {skipLatestRevCheck: true}\n")
    words = [str(program), f"--kubeconfig={kubeconfig}", "-n", NAMESPACE, "-c", "pods"]
    terminal = Terminal([*words, "--logoless", "--splashless"], environment)
    try:
        until(lambda: terminal.shows("seen") and terminal.shows("Running"))
        terminal.type(b"l")
        until(lambda: terminal.shows("hello-from-the-pod"))
    finally:
        terminal.close()
