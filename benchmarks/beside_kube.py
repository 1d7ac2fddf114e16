"""Policies, lists in protobuf and many pods, beside a kube-apiserver on an etcd.

    python -m benchmarks.beside_kube [policies] [protobuf] [memory]

`policies`: creates of pods while ten ValidatingAdmissionPolicies match each of them, and without.
`protobuf`: a list of 10,000 pods. `memory`: what 50,000 pods leave resident in `dralab apiserver`.
Counted is the CPU time of the servers in turns A B B A, of kube-apiserver without its etcd's:
what else runs on the machine then matters little. Programs are found as in `benchmarks.etcd`.
"""

import argparse
import http.client
import json
import ssl
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import kube
from benchmarks.apiserver import PODS, pod
from benchmarks.etcd import etcd
from benchmarks.load import load
from benchmarks.pairs import HERE, Server, turns

POLICIES = 10
ROUNDS = 6
COUNT = 1_000
LISTED = 10_000
KEPT = 50_000
NO_FSYNC = "--unsafe-no-fsync"
WHAT = ("policies", "protobuf", "memory")
GROUP = "/apis/admissionregistration.k8s.io/v1"
PROTOBUF = "application/vnd.kubernetes.protobuf"
Tested = Server | kube.KubeApiserver


def send(server: Tested, place: Path, path: str, value: dict[str, Any]) -> None:
    """Create an object. The process ends where that is refused."""
    body = place / "body.json"
    body.write_text(json.dumps(value))
    found = load(server.url, token=server.token, method="POST", path=path, body=body, n=1, c=1)
    if "201" not in found["statuses"]:
        sys.exit(f"{path}: {found}")


def create_policies(server: Tested, place: Path) -> None:
    """Create policies that match every pod and let it pass, each with a binding."""
    rule = {
        "operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"],
    }  # fmt: skip
    for number in range(POLICIES):
        name = f"policy-{number}"
        tested = "object.spec.containers.all(c, c.image.size() < 500 && !c.name.startsWith('no'))"
        spec = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": tested, "message": f"refused by {name}"}],
        }
        meta = {"metadata": {"name": name}}
        send(server, place, f"{GROUP}/validatingadmissionpolicies", {**meta, "spec": spec})
        bound = {"policyName": name, "validationActions": ["Deny"]}
        path = f"{GROUP}/validatingadmissionpolicybindings"
        send(server, place, path, {**meta, "spec": bound})
    time.sleep(3)  # a kube-apiserver sees them by a watch


def cost(server: Tested, **options: Any) -> float:
    """Return the microseconds of CPU time that a request takes."""
    before = server.seconds()
    found = load(server.url, token=server.token, **options)
    if set(found["statuses"]) - {"200", "201"}:
        sys.exit(f"{server.url}: {found}")
    return (server.seconds() - before) / options["n"] * 1e6


def take_turns(servers: dict[str, Tested], measure: Callable[[Tested, int], float]) -> None:
    """Measure in turns; print the least of each."""
    found: dict[str, list[float]] = {name: [] for name in servers}
    for number, order in turns(ROUNDS + 1):
        names = list(servers) if order[0] == 0 else list(reversed(servers))
        for name in names:
            spent = measure(servers[name], number)
            if number:  # the first round warms up
                found[name].append(spent)
    for name, taken in found.items():
        least, middle = min(taken), sorted(taken)[len(taken) // 2]
        print(f"  {name}: {least:,.0f} us at best, {middle:,.0f} in the median", flush=True)


def policies(place: Path, address: str, program: str) -> None:
    """Creates of pods with policies and without."""
    print(f"a create, {POLICIES} policies matching")
    body = place / "pod.json"
    body.write_text(json.dumps(pod(0)))
    servers: dict[str, Tested] = {
        "dralab, none": Server(HERE, place / "none", "tls"),
        "dralab": Server(HERE, place / "dralab", "tls"),
        "kube-apiserver": kube.KubeApiserver(program, place / "kube", address),
    }
    try:
        for name in ("dralab", "kube-apiserver"):
            create_policies(servers[name], place)
        options = {"method": "POST", "path": PODS, "body": body, "n": COUNT}
        take_turns(servers, lambda server, turn: cost(server, **options, first=turn * COUNT))
    finally:
        for server in servers.values():
            server.stop()


def protobuf(place: Path, address: str, program: str) -> None:
    """A list of many pods, as client-go asks for it."""
    print(f"a list of {LISTED:,} pods in protobuf")
    body = place / "pod.json"
    body.write_text(json.dumps(pod(0)))
    servers: dict[str, Tested] = {
        "dralab": Server(HERE, place / "lists", "tls"),
        "kube-apiserver": kube.KubeApiserver(program, place / "kube-lists", address),
    }
    try:
        for server in servers.values():
            cost(server, method="POST", path=PODS, body=body, n=LISTED)
        take_turns(servers, _listed)
    finally:
        for server in servers.values():
            server.stop()


def _listed(server: Tested, _: int) -> float:
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    asked = http.client.HTTPSConnection(server.url.removeprefix("https://"), context=context)
    head = {"Authorization": f"Bearer {server.token}", "Accept": PROTOBUF}
    before = server.seconds()
    asked.request("GET", f"{PODS}?resourceVersion=0", headers=head)
    answer = asked.getresponse()
    size = len(answer.read())
    if answer.status != http.client.OK or size < 1000 * LISTED // 10:
        sys.exit(f"{server.url}: {answer.status}, {size} bytes")
    asked.close()
    return (server.seconds() - before) * 1e6


def memory(place: Path) -> None:
    """What many pods leave resident."""
    body = place / "pod.json"
    body.write_text(json.dumps(pod(0)))
    server = Server(HERE, place / "memory", "tls")
    try:
        cost(server, method="POST", path=PODS, body=body, n=KEPT)
        status = Path(f"/proc/{server.process.pid}/status").read_text()
        kib = int(status.partition("VmRSS:")[2].split()[0])
        print(f"{KEPT:,} pods of {body.stat().st_size} bytes: {kib // 1024} MiB resident")
    finally:
        server.stop()


def main() -> None:
    """Measure what is named, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", nargs="*", choices=WHAT)
    wanted = parser.parse_args().what or list(WHAT)
    program = kube.program()
    if program is None and set(wanted) - {"memory"}:
        sys.exit("there is no kube-apiserver: put one on the PATH, or name it")
    with (
        tempfile.TemporaryDirectory() as folder,
        etcd(Path(folder), "--unsafe-no-fsync") as address,
    ):
        place = Path(folder)
        there = address.replace("etcd://", "http://")
        if "policies" in wanted:
            policies(place, there, program or "")
        if "protobuf" in wanted:
            protobuf(place, there, program or "")
        if "memory" in wanted:
            memory(place)


if __name__ == "__main__":
    main()
