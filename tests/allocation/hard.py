"""Problems on which a search over single devices takes exponential time (Kubernetes' does)."""

from collections.abc import Iterator

from allocation.builders import (
    carries,
    claim,
    device,
    either,
    exactly,
    match,
    pool,
    problem,
    request,
)
from dralab.allocation.problem import Constraint, Device, Problem, Request, Slice


def mig(gpus: int, *, quarters: int = 4) -> tuple[Slice, ...]:
    """GPUs of 8 units each, cut into 1 full, 2 half or 4 quarter partitions."""
    devices: list[Device] = []
    for gpu in range(gpus):
        draws = f"gpu-{gpu}"
        devices.append(device(f"g{gpu}-full", draws={draws: {"m": 8}}, kind="full"))
        devices += [
            device(f"g{gpu}-half{i}", draws={draws: {"m": 4}}, kind="half") for i in range(2)
        ]
        devices += [
            device(f"g{gpu}-quarter{i}", draws={draws: {"m": 2}}, kind="quarter")
            for i in range(quarters)
        ]
    return pool(*devices, counters={f"gpu-{gpu}": {"m": 8} for gpu in range(gpus)})


def equal(count: int, **attributes: object) -> tuple[Slice, ...]:
    return pool(*(device(f"d{i}", i=i, **attributes) for i in range(count)))


def below(k: int):  # type: ignore[no-untyped-def]
    """Selector: devices with index at least k."""
    from allocation.builders import Where

    return Where(f"i >= {k}", lambda each: each.attributes["d/i"].values[0] >= k, ("d/i",))  # type: ignore[operator]


def pairs(k: int, *, missing: bool) -> Problem:
    """k GPU+NIC pairs, each on one root; 8 GPUs on 4 roots, 8 NICs on 2 of them."""
    devices = [device(f"g{i}", kind="gpu", root=i // 2) for i in range(8)]
    devices += [device(f"n{i}", kind="nic", root=i // 4) for i in range(8)]
    parts: list[object] = []
    for i in range(k):
        parts += [
            request(f"g{i}", carries("kind", "gpu")),
            request(f"n{i}", carries("kind", "nic")),
            match("root", f"g{i}", f"n{i}"),
        ]
    if missing:
        parts.append(request("missing", carries("kind", "tpu")))
    return problem(pool(*devices), claim("c", *parts))  # type: ignore[arg-type]


def hard() -> Iterator[tuple[str, Problem, bool]]:
    """Yield (name, problem, whether it can be met)."""
    for n in (8, 16, 22, 31):
        yield (
            f"C: {n + 1} of {n} equal devices",
            problem(equal(n), claim("c", request("r", count=n + 1))),
            False,
        )
    for k in (8, 16, 32):
        many = [request(f"r{i}") for i in range(k - 1)]
        yield (
            f"d1: the last of {k} requests matches nothing",
            problem(equal(k), claim("c", *many, request("z", carries("i", 99)))),
            False,
        )
        yield (
            f"d2: the last of {k} requests matches the first device alone",
            problem(equal(k), claim("c", *many, request("z", carries("i", 0)))),
            True,
        )
        yield (
            f"d3: {k} requests for {k - 1} devices",
            problem(equal(k - 1), claim("c", *many, request("z"))),
            False,
        )
        kinds = [
            request("r0", carries("i", k - 1)),
            *(request(f"r{i}", below(i)) for i in range(1, k)),
        ]
        yield f"d6: {k} distinct kinds", problem(equal(k), claim("c", *kinds)), False
    for g in (2, 3, 4, 8):
        if 4 * g < 32:
            yield (
                f"D4: {4 * g + 1} partitions of {g} GPUs",
                problem(mig(g), claim("c", request("r", count=4 * g + 1))),
                False,
            )
        yield (
            f"D2: halves and one more full, {g} GPUs",
            problem(
                mig(g),
                claim(
                    "c",
                    request("h", carries("kind", "half")),
                    request("f", carries("kind", "full"), count=g),
                ),
            ),
            False,
        )
        if 4 * g - 1 <= 32:
            yield (
                f"D3: quarters and two halves, {g} GPUs",
                problem(
                    mig(g),
                    claim(
                        "c",
                        request("q", carries("kind", "quarter"), count=4 * g - 3),
                        request("h", carries("kind", "half"), count=2),
                    ),
                ),
                False,
            )
        yield (
            f"D: quarters, then full ones, {g} GPUs",
            problem(
                mig(g),
                claim(
                    "c",
                    request("q", carries("kind", "quarter"), count=2 * g),
                    request("f", carries("kind", "full"), count=g // 2),
                ),
            ),
            True,
        )
    yield (
        "d5: 17 halves of 8 GPUs",
        problem(mig(8), claim("c", request("r", carries("kind", "half"), count=17))),
        False,
    )
    for k in (2, 3, 4):
        yield f"E2: {k} GPU+NIC pairs, and a kind that is missing", pairs(k, missing=True), False
        yield f"E2: {k} GPU+NIC pairs", pairs(k, missing=False), True
    yield "E2: 5 GPU+NIC pairs where 4 fit", pairs(5, missing=False), False
    many = [device(f"g{i}", kind="gpu", root=i // 2) for i in range(16)]
    many += [device(f"n{i}", kind="nic", root=i // 4) for i in range(28)]
    rows: list[Request | Constraint] = []
    for i in range(15):
        rows += [
            request(f"g{i}", carries("kind", "gpu")),
            request(f"n{i}", carries("kind", "nic")),
            match("root", f"g{i}", f"n{i}"),
        ]
    yield (
        "E2: 15 GPU+NIC pairs on 8 roots where 14 fit",
        problem(pool(*many), claim("c", *rows)),
        False,
    )
    for n in (8, 12, 16):
        claims = [claim(f"c{i}", request("r", count=2)) for i in range(3)]
        yield (
            f"F: {n} devices, three claims, and one that matches nothing",
            problem(equal(n), *claims, claim("z", request("r", carries("i", 99)))),
            False,
        )
    for k in (8, 16, 31):
        # Two devices share a counter that lasts for one of them, and every request is of its own kind.
        halves = pool(
            *(device(f"d{i}", i=i, draws={f"s{i // 2}": {"m": 1}}) for i in range(k + k % 2)),
            counters={f"s{i}": {"m": 1} for i in range((k + 1) // 2)},
        )
        fit = (k + 1) // 2
        yield (
            f"kinds: {fit + 1} distinct kinds on {fit} counters",
            problem(halves, claim("c", *(request(f"r{i}", below(i)) for i in range(fit + 1)))),
            False,
        )
        yield (
            f"kinds: {fit} distinct kinds on {fit} counters",
            problem(halves, claim("c", *(request(f"r{i}", below(i)) for i in range(fit)))),
            True,
        )
    options = [
        either(f"r{i}", *(exactly(f"a{j}", count=8 - j) for j in range(8))) for i in range(8)
    ]
    yield (
        "alternatives: 8 requests of 8 to 1 devices on 32",
        problem(equal(32), claim("c", *options)),
        True,
    )
    yield (
        "alternatives: 8 requests of 8 to 1 devices on 7",
        problem(equal(7), claim("c", *options)),
        False,
    )
