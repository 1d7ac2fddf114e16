"""One small client beside greedy ones: how long a `get` takes while 500 connections ask.

    python -m benchmarks.fairness [CASE…]

The greedy program creates, lists and gets on 500 connections without a pause; on 100 it creates
what an admission policy compares with itself, item by item. Beside it another
one gets a namespace 20 times a second. The goal is a 99th percentile of 100 ms; the ratio is to
the same `get` on an idle server.
"""

import json
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

from benchmarks.load import load

CONNECTIONS = 500
SLOW_CONNECTIONS = 100
GETS = 200
GOAL = 100.0  # milliseconds
MAPS = "/api/v1/namespaces/default/configmaps"
POLICIES = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolic"
SLOW = {"method": "POST", "path": "/api/v1/namespaces/default/secrets"}
POLICY = {
    "metadata": {"name": "slow"},
    "spec": {
        "matchConstraints": {
            "resourceRules": [
                {
                    "apiGroups": [""],
                    "apiVersions": ["v1"],
                    "operations": ["CREATE"],
                    "resources": ["secrets"],
                }
            ]
        },
        "validations": [
            {
                "expression": "object.data.all(a, object.data.all(b, "
                "object.data[a] + object.data[b] != 'x'))"
            }
        ],
    },
}
BINDING = {
    "metadata": {"name": "slow"},
    "spec": {"policyName": "slow", "validationActions": ["Deny"]},
}
GREEDY = {
    "creates": {"method": "POST", "path": MAPS},
    "gets": {"method": "GET", "path": f"{MAPS}/there"},
    "lists of 500": {"method": "GET", "path": f"{MAPS}?limit=500"},
    "slow policies": SLOW,
}


def start() -> tuple[subprocess.Popen[str], str]:
    """Start a server of its own process; return it and its URL."""
    command = [sys.executable, "-m", "dralab", "apiserver", "--plain", "--listen", "127.0.0.1:0"]
    command += ["--data", ":memory:"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert process.stdout is not None
    return process, process.stdout.readline().removeprefix("ready: ").strip()


def one(url: str) -> dict[str, float]:
    """Return what the small client measures, in milliseconds."""
    options = {"method": "GET", "path": "/api/v1/namespaces/default", "agent": "kubectl"}
    return load(url, n=GETS, c=1, rate=20, **options)


def main() -> None:
    """Measure and print."""
    process, url = start()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        body = Path(folder) / "body.json"
        body.write_text(json.dumps({"metadata": {"name": "there"}, "data": {"a": "b"}}))
        load(url, method="POST", path=MAPS, body=body, n=1)
        body.write_text(json.dumps({"metadata": {"generateName": "c-"}, "data": {"a": "b" * 500}}))
        load(url, method="POST", path=MAPS, body=body, n=500)
        other = Path(folder) / "other.json"
        for ending, value in (("ies", POLICY), ("ybindings", BINDING)):
            other.write_text(json.dumps(value))
            load(url, method="POST", path=POLICIES + ending, body=other, n=1)
        data = {f"k{number}": "djE=" for number in range(300)}
        other.write_text(json.dumps({"metadata": {"generateName": "s-"}, "data": data}))
        idle = one(url)
        print(f"idle: p50 {idle['p50_ms']:.1f} ms, p99 {idle['p99_ms']:.1f} ms")
        try:
            for name, options in GREEDY.items():
                if sys.argv[1:] and name not in sys.argv[1:]:
                    continue
                slow = options is SLOW
                connections = SLOW_CONNECTIONS if slow else CONNECTIONS
                count = 2_000 if "lists" in name else 150_000 if "gets" in name else 50_000
                count = SLOW_CONNECTIONS if slow else count
                posted = other if slow else body
                extra = {"body": posted} if options["method"] == "POST" else {}
                found: dict[str, dict[str, float]] = {}

                def ask(
                    options: dict[str, str] = options,
                    extra: dict[str, Path] = extra,
                    count: int = count,
                    connections: int = connections,
                    found: dict[str, dict[str, float]] = found,
                ) -> None:
                    found["greedy"] = load(url, c=connections, n=count, **options, **extra)

                greedy = threading.Thread(target=ask)
                greedy.start()
                small = one(url)
                overlapped = greedy.is_alive()
                greedy.join()
                ratio = small["p99_ms"] / idle["p99_ms"]
                failed |= small["p99_ms"] > GOAL
                print(
                    f"{connections} connections, {name}: p50 {small['p50_ms']:.1f} ms, "
                    f"p99 {small['p99_ms']:.1f} ms ({ratio:.1f} x idle, goal {GOAL:.0f}), greedy "
                    f"{found['greedy']['per_second']:.0f}/s"
                    + ("" if overlapped else " (ended first)")
                )
        finally:
            process.terminate()
            process.wait()
    if failed:
        sys.exit("a small client waits too long")


if __name__ == "__main__":
    main()
