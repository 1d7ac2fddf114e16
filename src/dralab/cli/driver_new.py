"""`dralab driver new`: write a small driver project."""

import keyword
import re
from pathlib import Path
from shutil import copyfile
from typing import Final

import click

from dralab.cli._options import FOLDER, arg, opt, options
from dralab.cli._terminal import echo
from dralab.cli.errors import UnusableInput
from dralab.values.names import subdomain_problems

WHEELS: Final = "wheels"
LONGEST_NAME: Final = 63  # resource.k8s.io: names of drivers

CODE: Final = '''"""The driver {driver}."""

from dralab.contracts.plugin import DeviceHealth
from dralab.drivers.driver import ContainerEdits, Driver, PrepareError, SliceOf


class {klass}(Driver):
    """Two devices, each of which is given out whole or in halves."""

    name = "{driver}"

    def inventory(self):
        """Return the slices: what the parts of a device share comes before them."""
        counters, devices = [], []
        for number in range(2):
            shared = f"device-{{number}}-counters"
            counters.append({{"name": shared, "counters": {{"memory": {{"value": "16Gi"}}}}}})
            for name, memory in (("whole", "16Gi"), ("half-0", "8Gi"), ("half-1", "8Gi")):
                consumed = {{"counterSet": shared, "counters": {{"memory": {{"value": memory}}}}}}
                devices.append({{
                    "name": f"device-{{number}}-{{name}}",
                    "attributes": {{"index": {{"int": number}}, "part": {{"string": name}}}},
                    "capacity": {{"memory": {{"value": memory}}}},
                    "consumesCounters": [consumed],
                }})
        return [SliceOf(counters=counters), SliceOf(devices=devices)]

    def edits(self, claim, result):
        """Return what a container with this device sees."""
        if parameters := claim.config_for(result):
            raise PrepareError(f"unknown parameters: {{', '.join(parameters)}}")
        return ContainerEdits(env=(f"{prefix}_DEVICE={{result.device}}",))

    def health(self):
        """Return how the devices are; the pool of a node's devices is named like the node."""
        return [
            DeviceHealth(pool=self.node, device=device["name"], health="Healthy")
            for part in self.inventory()
            for device in part.devices
        ]
'''
TEST: Final = '''"""The driver in a cluster in this process: no hardware, no containers, no root."""

import time
from pathlib import Path

from dralab.api.yaml_documents import documents
from dralab.cluster import Cluster
from dralab.components.control_plane import ControlPlane
from dralab.components.nodes import NodeOptions, Nodes
from dralab.runtime.resources import CLAIM_TEMPLATES, CLAIMS, PODS
from {module} import {klass}

MANIFEST = Path(__file__).parents[1] / "manifests" / "demo.yaml"


def test_a_pod_runs_with_a_device():
    nodes = Nodes(NodeOptions(nodes=1, drivers=({klass},)))
    template, pod = (each.value for each in documents(MANIFEST.read_text()))
    with Cluster(components=[ControlPlane(), nodes]) as cluster:
        cluster.client.create(CLAIM_TEMPLATES, template, "default")
        cluster.client.create(PODS, pod, "default")
        for _ in range(100):
            status = cluster.client.get(PODS, "demo", "default").get("status", {{}})
            if status.get("phase") == "Running":
                break
            time.sleep(0.1)
        assert status.get("phase") == "Running", status
        (claim,) = cluster.client.list(CLAIMS).items
        (result,) = claim["status"]["allocation"]["devices"]["results"]
        assert result["driver"] == {klass}.name
        assert result["device"] == "device-0-half-0"
'''
MANIFEST: Final = """apiVersion: resource.k8s.io/v1
kind: ResourceClaimTemplate
metadata: {{name: demo, namespace: default}}
spec:
  spec:
    devices:
      requests:
      - name: device
        exactly:
          deviceClassName: {driver}
          selectors:
          - cel: {{expression: 'device.attributes["{driver}"].part.startsWith("half")'}}
---
apiVersion: v1
kind: Pod
metadata: {{name: demo, namespace: default}}
spec:
  resourceClaims: [{{name: device, resourceClaimTemplateName: demo}}]
  containers:
  - name: main
    image: busybox
    command: [sh, -c, "env | grep {prefix}; sleep 1d"]
    resources: {{claims: [{{name: device}}]}}
"""
CI: Final = """on: [push, pull_request]
jobs:
  test:
    runs-on: ubuntu-latest
    steps:
    - uses: actions/checkout@v4
    - uses: actions/setup-python@v5
      with: {{python-version: "3.12"}}
    - run: pip install pytest '{source}'
    - run: python -m pytest
"""
PROJECT: Final = """[project]
name = "{folder}"
version = "0.1.0"
requires-python = ">=3.11"
dependencies = ["{requirement}"]

[tool.pytest.ini_options]
pythonpath = ["."]
testpaths = ["tests"]
"""
README: Final = """# {driver}

A driver for Dynamic Resource Allocation, written with dralab.

    python -m pytest    # in a cluster in the test's own process

With a cluster of its own, in this directory:

    dralab up --empty --nodes 1 --root /tmp/lab --kubeconfig lab.kubeconfig
    dralab driver run {module}:{klass} --kubeconfig lab.kubeconfig --node node-0 \\
      --root /tmp/lab/node-0 --cdi-root /tmp/lab/node-0/cdi
    kubectl --kubeconfig lab.kubeconfig apply -f manifests/demo.yaml
    kubectl --kubeconfig lab.kubeconfig logs demo

- `{module}.py`: the devices, and what containers with them see
- `manifests/demo.yaml`: a claim and a pod
- `tests/`, `.github/workflows/test.yml`: the test, here and in CI
"""


@click.command("new")
@options
def new(
    *,
    name: str = arg(),
    directory: Path | None = opt(
        "Write to this directory.  [default: the first part of the name]", FOLDER, flags="--write"
    ),
    dralab: str = opt(
        "Where CI installs dralab from: a wheel, which is copied into the project, a directory, or "
        "a URL such as git+https://…  [default: the package index]",
        metavar="PATH|URL",
    ),
) -> None:
    """Write a small driver project: code, a test, a manifest and a CI file.

    NAME is the driver's name, a DNS subdomain of at most 63 characters. The driver has two devices,
    each of which is given out whole or in halves, and reports their health.

    Example: `dralab driver new lamps.example.com && cd lamps && python -m pytest`
    """
    if problems := subdomain_problems(name):
        raise click.BadParameter(f"{name!r}: {'; '.join(problems)}", param_hint="NAME")
    if len(name) > LONGEST_NAME:
        raise click.BadParameter(
            f"{name!r}: must be no more than {LONGEST_NAME} characters", param_hint="NAME"
        )
    folder = name.partition(".")[0]
    module = re.sub(r"\W", "_", folder)
    if not module.isidentifier() or keyword.iskeyword(module):
        module = f"driver_{module}"
    words = {
        "driver": name,
        "folder": folder,
        "module": module,
        "klass": "".join(part.capitalize() for part in module.split("_")),
        "prefix": module.upper(),
    }
    root = directory or Path(folder)
    wheel = Path(dralab) if dralab.endswith(".whl") and "://" not in dralab else None
    words |= _sources(dralab, wheel)
    try:
        root.mkdir(parents=True)
        if wheel is not None:
            (root / WHEELS).mkdir()
            copyfile(wheel, root / WHEELS / wheel.name)
        for path, text in (
            (f"{module}.py", CODE),
            (f"tests/test_{module}.py", TEST),
            ("manifests/demo.yaml", MANIFEST),
            (".github/workflows/test.yml", CI),
            ("pyproject.toml", PROJECT),
            ("README.md", README),
        ):
            file = root / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text.format(**words), encoding="utf-8")
    except FileExistsError as error:
        raise UnusableInput(f"{root} exists: choose another --write") from error
    except OSError as error:
        raise UnusableInput(f"cannot write {root}: {error.strerror or error}") from error
    echo(f"wrote {root}/; next: cd {root} && python -m pytest", err=True)
    if not dralab:
        echo("CI installs dralab from the package index: --dralab names another source", err=True)


def _sources(dralab: str, wheel: Path | None) -> dict[str, str]:
    """Return what pip installs in CI, and what the project requires. BadParameter."""
    if not re.fullmatch(r"[\w.+:/@%#=&?~-]*", dralab):
        raise click.BadParameter(f"{dralab!r} is not a path or URL", param_hint="--dralab")
    if "://" in dralab:
        return dict.fromkeys(("source", "requirement"), f"dralab[grpc] @ {dralab}")
    if dralab and not Path(dralab).exists():
        raise click.BadParameter(f"{dralab} does not exist", param_hint="--dralab")
    place = f"./{WHEELS}/{wheel.name}" if wheel is not None else dralab and Path(dralab).absolute()
    return {"source": f"{place or 'dralab'}[grpc]", "requirement": "dralab[grpc]"}
