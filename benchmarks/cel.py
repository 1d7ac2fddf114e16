"""Evaluations per second of five selectors of the kind that drivers document.

    python -m benchmarks.cel

Printed beside cel-expr-python (Google's library around cel-cpp) with its activation reused, as
measured on a 2-core x86-64 machine with CPython 3.11: the fastest ready-made engine for Python.
The exact form counts cost units; it decides where the generated form meets an error.
"""

import time
from collections.abc import Callable

from benchmarks.board import record
from dralab.cel import compile_selector, device_value
from dralab.cel.program import compile_expression

SELECTORS = {
    "S1 model, capacity": (
        'device.attributes["gpu.example.com"].model == "LATEST-GPU" && '
        'device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) >= 0',
        211_000,
    ),
    "S2 has, in, version": (
        'has(device.attributes["gpu.example.com"].driverVersion) && '
        'device.attributes["gpu.example.com"].architecture in ["Ampere", "Hopper", "Blackwell"] && '
        'device.attributes["gpu.example.com"].driverVersion.isGreaterThan(semver("535.0.0"))',
        161_600,
    ),
    "S3 lowerAscii, matches": (
        'device.attributes["gpu.example.com"].productName.lowerAscii()'
        '.matches("^acme .*(a100|h100)")',
        79_000,
    ),
    "S4 bind, optionals": (
        'cel.bind(a, device.attributes["gpu.example.com"], '
        'a.?index.orValue(-1) >= 0 && a[?"profile"].orValue("none") == "none")',
        396_900,
    ),
    "S5 shared, exists": (
        "device.allowMultipleAllocations && "
        'device.capacity["gpu.example.com"].memory.isGreaterThan(quantity("10Gi")) && '
        '["LATEST", "OLDER"].exists(p, device.attributes["gpu.example.com"].model.startsWith(p))',
        186_900,
    ),
}

DEVICE = device_value(
    driver="gpu.example.com",
    allow_multiple_allocations=True,
    attributes={
        "model": {"string": "LATEST-GPU"},
        "architecture": {"string": "Ampere"},
        "productName": {"string": "ACME A100-SXM4-40GB"},
        "driverVersion": {"version": "550.54.15"},
        "cudaVersion": {"version": "12.4.0"},
        "index": {"int": 3},
        "minor": {"int": 3},
        "uuid": {"string": "gpu-18db0e85-99e9-c746-8531-ffeb86328b39"},
        "healthy": {"bool": True},
        "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
    },
    capacity={"memory": {"value": "80Gi"}, "cores": {"value": "108"}, "links": {"value": "12"}},
)


def rate(function: Callable[[object], object], seconds: float = 0.3) -> float:
    """Return calls per second, the best of five runs."""
    calls, best = 1000, 0.0
    for _ in range(6):
        start = time.perf_counter()
        for _ in range(calls):
            function(DEVICE)
        spent = time.perf_counter() - start
        best = max(best, calls / spent)
        calls = max(1000, int(best * seconds / 5))
    return best


def main() -> None:
    print(f"{'selector':24}{'compile ms':>11}{'per s':>13}{'ratio':>7}{'exact per s':>13}")
    for name, (text, baseline) in SELECTORS.items():
        selector = compile_selector(text)
        assert selector.evaluate(DEVICE)
        start = time.perf_counter()
        for _ in range(20):
            assert compile_expression(text, selector.program.environment).fast
        spent = (time.perf_counter() - start) / 20 * 1000
        fast = rate(selector.evaluate)
        exact = rate(selector.outcome, 0.1)
        print(f"{name:24}{spent:11.2f}{fast:13,.0f}{fast / baseline:7.1f}{exact:13,.0f}")
        record(f"CEL: {name}", fast, "/s")


if __name__ == "__main__":
    main()
