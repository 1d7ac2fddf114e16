"""Commands as processes of their own: a server, nodes, drivers."""

import os
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import yaml

from dralab.runtime.kubeconfig import read
from dralab.runtime.remote import RemoteClient
from dralab.runtime.resources import CLAIM_TEMPLATES, PODS

PATIENCE = 150.0
TEMPLATE, POD = yaml.safe_load_all("""
metadata: {name: gpu}
spec: {spec: {devices: {requests: [{name: gpu, exactly: {deviceClassName: gpu.example.com}}]}}}
---
metadata: {name: job}
spec:
  terminationGracePeriodSeconds: 1
  containers:
  - name: ctr0
    image: ubuntu
    command: [bash, -c, "export; sleep 9999"]
    resources: {claims: [{name: gpu}]}
  resourceClaims: [{name: gpu, resourceClaimTemplateName: gpu}]
""")


class Processes:
    """`dralab up` and what works with it, in a directory whose paths are short enough.

    `options` are those of `dralab up`.
    """

    def __init__(self, *options):
        self.place = tempfile.TemporaryDirectory(prefix="lab")
        self.root = Path(self.place.name)
        self.kubeconfig = self.root / "config"
        self.running = {}
        fixed = ["--empty", "--data", ":memory:", "--listen", "127.0.0.1:0"]
        self.dralab("up", "up", *fixed, *options)
        self.client = RemoteClient(read(self.kubeconfig))

    @property
    def shared(self):
        """The options by which a node and its driver meet."""
        return ["--root", self.root / "k", "--cdi-root", self.root / "cdi"]

    def node(self, name):
        self.dralab("node", "node", "--name", name, *self.shared)

    def driver(self, name, node, *options):
        self.dralab("driver", "driver", "run", name, "--node", node, *self.shared, *options)

    def dralab(self, key, *arguments):
        """Run a command until it says that it is ready."""
        command = [sys.executable, "-m", "dralab", *arguments, "--kubeconfig", self.kubeconfig]
        self.run(key, command)
        self.until(lambda: "ready: " in self.said(key), key)

    def run(self, key, command, **variables):
        with (self.root / f"{key}.log").open("a") as log:
            self.running[key] = subprocess.Popen(
                [str(word) for word in command],
                stdout=log,
                stderr=log,
                cwd=self.root,
                env=os.environ | variables,
            )

    def said(self, key):
        """Return what a process has written."""
        return (self.root / f"{key}.log").read_text()

    def stop(self, key):
        """Stop a process by SIGTERM; return its exit code."""
        process = self.running.pop(key)
        process.terminate()
        return process.wait(PATIENCE)

    def kill(self, key):
        process = self.running.pop(key)
        process.kill()
        process.wait()

    def until(self, condition, about="node", patience=PATIENCE):
        """Wait for a condition; its value."""
        pause, end = threading.Event(), time.monotonic() + patience  # noqa: TID251 - real processes
        while time.monotonic() < end:  # noqa: TID251 - real processes
            if found := condition():
                return found
            process = self.running.get(about)
            assert process is None or process.poll() is None, self.said(about)
            pause.wait(0.05)
        raise AssertionError(self.said(about))

    def create_pod(self):
        """Create a pod that asks for a GPU and shows its environment."""
        self.client.create(CLAIM_TEMPLATES, TEMPLATE, "default")
        # A namespace that is new gets its service account a moment later.
        self.client.create(PODS, POD, "default")

    def phase(self):
        found = self.client.get(PODS, "job", "default")
        return (found.get("status") or {}).get("phase")

    def environment(self):
        """Return the variables that the pod's container shows."""
        (log,) = (self.root / "k" / "logs").glob("default_job_*/ctr0/0.log")
        lines = [line.split(" ", 3)[3] for line in log.read_text().splitlines()]
        return dict(
            line.removeprefix("declare -x ").replace('"', "").split("=", 1)
            for line in lines
            if line.startswith("declare -x ") and "=" in line
        )

    def cdi(self):
        """Return the names of the CDI files that belong to claims."""
        return [p.name for p in (self.root / "cdi").iterdir() if "common" not in p.name]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.client.close()
        for key in list(self.running):
            self.kill(key)
        self.place.cleanup()
