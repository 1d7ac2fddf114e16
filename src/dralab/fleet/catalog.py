"""GPU models and their possible MIG partitions.

Figures: NVIDIA's MIG user guide ("Supported MIG Profiles": names, instances, memory and SM
fractions, engines) and data sheets; A100: the partitioning study of the k8srm prototype, whose
26 instances give 2,319 possible sets. SM counts of the Blackwell profiles are whole TPCs nearest
to the published fractions.
"""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from dralab.values.records import dataclass

TOTALS: Final = (
    "multiprocessors", "copy-engines", "decoders", "encoders", "jpeg-engines", "ofa-engines",
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class MigProfile:
    """One MIG profile: its possible starts, and the counters of one instance.

    `slices` is how many of the eight memory slices it uses, from its start on.
    """

    name: str
    starts: tuple[int, ...]
    slices: int
    multiprocessors: int
    copy_engines: int
    decoders: int
    memory: str
    jpeg: int = 0
    ofa: int = 0

    @property
    def part(self) -> str:
        """The profile as a part of a device's name."""
        return self.name.replace("+", "-")

    def consumption(self, start: int) -> dict[str, str]:
        """Return the counters of the card that an instance at `start` consumes."""
        amounts = {
            "multiprocessors": self.multiprocessors,
            "copy-engines": self.copy_engines,
            "decoders": self.decoders,
            "jpeg-engines": self.jpeg,
            "ofa-engines": self.ofa,
        }
        taken = {name: str(amount) for name, amount in amounts.items() if amount}
        taken["memory"] = self.memory
        return taken | {f"memory-slices-{n}": "1" for n in range(start, start + self.slices)}


@dataclass(frozen=True, slots=True, kw_only=True)
class GpuModel:
    """A GPU product: its attributes, its totals, and its MIG profiles in published order."""

    product: str
    architecture: str
    compute_capability: str
    driver_version: str
    cuda_version: str
    memory: str
    totals: Mapping[str, int]
    profiles: tuple[MigProfile, ...] = field(default=())

    def counters(self) -> dict[str, str]:
        """Return the totals of one card's counters."""
        found = {"memory": self.memory} | {name: str(n) for name, n in self.totals.items()}
        return found | {f"memory-slices-{n}": "1" for n in range(8)}


def _profiles(
    names: tuple[str, str, str, str, str, str, str],
    memory: tuple[str, str, str, str],
    multiprocessors: tuple[int, int, int, int, int, int],
    decoders: tuple[int, int, int, int, int, int],
    engines: int,
) -> tuple[MigProfile, ...]:
    """Return the profiles of a GPU of seven compute slices.

    `names`: 1g, 2g, 3g, 4g, 7g, 1g with media, 1g with double memory. `memory`: of one, two, four
    and eight slices. `multiprocessors` and `decoders`: 1g, 2g, 3g, 4g, 7g, 1g double. `engines`:
    JPEG engines per decoder (0: only with media).
    """
    one, two, three, four, seven, media, double = names
    a, b, c, d = memory
    sm1, sm2, sm3, sm4, sm7, smd = multiprocessors
    d1, d2, d3, d4, d7, dd = decoders

    def profile(  # noqa: PLR0917 - a row of a table
        name: str, starts: tuple[int, ...], slices: int, sms: int, copies: int, decs: int, mem: str
    ) -> MigProfile:
        full = name in {seven, media}
        return MigProfile(
            name=name,
            starts=starts,
            slices=slices,
            multiprocessors=sms,
            copy_engines=copies,
            decoders=decs,
            memory=mem,
            jpeg=decs * engines if engines else int(full),
            ofa=int(full),
        )

    return (
        profile(one, tuple(range(7)), 1, sm1, 1, d1, a),
        profile(two, (0, 2, 4), 2, sm2, 2, d2, b),
        profile(three, (0, 4), 4, sm3, 3, d3, c),
        profile(four, (0,), 4, sm4, 4, d4, c),
        profile(seven, (0,), 8, sm7, 7, d7, d),
        profile(media, tuple(range(7)), 1, sm1, 1, max(1, d1), a),
        profile(double, (0, 2, 4, 6), 2, smd, 1, dd, b),
    )


def _totals(*amounts: int) -> dict[str, int]:
    """Return the totals of a card: multiprocessors, engines to copy, decode, encode, JPEG, OFA."""
    return dict(zip(TOTALS, amounts, strict=True))


A100: Final = GpuModel(
    product="A100-SXM4-40GB",
    architecture="Ampere",
    compute_capability="8.0.0",
    driver_version="550.54.15",
    cuda_version="12.4.0",
    memory="40Gi",
    totals=_totals(98, 7, 5, 0, 1, 1),
    profiles=_profiles(
        ("1g.5gb", "2g.10gb", "3g.20gb", "4g.20gb", "7g.40gb", "1g.5gb+me", "1g.10gb"),
        ("4864Mi", "9856Mi", "19968Mi", "40192Mi"),
        (14, 28, 42, 56, 98, 14),
        (0, 1, 2, 2, 5, 1),
        engines=0,
    ),
)
# Ada Lovelace has no MIG: a card is handed out whole.
L40S: Final = GpuModel(
    product="L40S",
    architecture="Ada Lovelace",
    compute_capability="8.9.0",
    driver_version="570.86.15",
    cuda_version="12.8.0",
    memory="48Gi",
    totals=_totals(142, 2, 3, 3, 4, 1),
)
H100: Final = GpuModel(
    product="H100-SXM5-80GB",
    architecture="Hopper",
    compute_capability="9.0.0",
    driver_version="570.86.15",
    cuda_version="12.8.0",
    memory="80Gi",
    totals=_totals(132, 8, 7, 0, 7, 1),
    profiles=_profiles(
        ("1g.10gb", "2g.20gb", "3g.40gb", "4g.40gb", "7g.80gb", "1g.10gb+me", "1g.20gb"),
        ("9856Mi", "19968Mi", "40192Mi", "80384Mi"),
        (16, 32, 60, 64, 132, 26),
        (1, 2, 3, 4, 7, 1),
        engines=1,
    ),
)
B200: Final = GpuModel(
    product="B200-180GB",
    architecture="Blackwell",
    compute_capability="10.0.0",
    driver_version="580.65.6",
    cuda_version="13.0.0",
    memory="180Gi",
    totals=_totals(148, 8, 7, 0, 7, 1),
    profiles=_profiles(
        ("1g.23gb", "2g.45gb", "3g.90gb", "4g.90gb", "7g.180gb", "1g.23gb+me", "1g.45gb"),
        ("22144Mi", "44544Mi", "90112Mi", "182272Mi"),
        (18, 36, 70, 72, 148, 30),
        (1, 2, 3, 4, 7, 1),
        engines=1,
    ),
)
GB200: Final = GpuModel(
    product="GB200-186GB",
    architecture="Blackwell",
    compute_capability="10.0.0",
    driver_version="580.65.6",
    cuda_version="13.0.0",
    memory="186Gi",
    totals=B200.totals,
    profiles=_profiles(
        ("1g.23gb", "2g.47gb", "3g.93gb", "4g.93gb", "7g.186gb", "1g.23gb+me", "1g.47gb"),
        ("23552Mi", "47104Mi", "94208Mi", "188416Mi"),
        (18, 36, 70, 72, 148, 30),
        (1, 2, 3, 4, 7, 1),
        engines=1,
    ),
)
