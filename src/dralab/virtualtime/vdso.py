"""Rewrites a program's vDSO so that it reads a number that the supervisor writes.

The kernel maps its own code for clock_gettime into every program. We put another block over the
section headers at the end of that image, which no program reads at run time (in a private copy of
the page), and let the functions jump there. A read costs nanoseconds and no system call; static
programs use it, too, since it is not the C library's.
"""

import contextlib
import os
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dralab.virtualtime.machine import BLOCK, MONOTONIC, OFFSET, Architecture

AT_NULL, AT_RANDOM, AT_SYSINFO_EHDR = 0, 25, 33
# Where programs get random numbers without a system call.
RANDOM_FUNCTIONS: Final = frozenset({"__vdso_getrandom", "__kernel_getrandom"})
PAGE: Final = 4096
LARGEST: Final = 16 * PAGE
LINE: Final = 64
_PT_LOAD, _PT_DYNAMIC = 1, 2
_DT_HASH, _DT_STRTAB, _DT_SYMTAB = 4, 5, 6


@dataclass(frozen=True, slots=True)
class VdsoImage:
    """The vDSO image of this kernel."""

    block: int  # where our code goes, from the image's start
    functions: Mapping[str, int]
    random: tuple[int, ...] = ()  # functions that return random numbers


def image_address(auxv: bytes) -> int | None:
    """Return where the vDSO is, by the auxiliary vector; None for a program without one."""
    return _entry(auxv, AT_SYSINFO_EHDR)


def random_address(auxv: bytes) -> int | None:
    """Return where the 16 random bytes are that the kernel gives to a program."""
    return _entry(auxv, AT_RANDOM)


def _entry(auxv: bytes, wanted: int) -> int | None:
    for kind, value in struct.iter_unpack("<QQ", auxv[: len(auxv) // 16 * 16]):
        if kind == wanted:
            return int(value)
        if kind == AT_NULL:
            break
    return None


def read_image(data: bytes, machine: Architecture) -> VdsoImage | None:
    """Find the functions and the room for the block in the image `data`; None if it has none."""
    symbols = _symbols(data)
    functions = {name: at for name, at in symbols.items() if name in machine.functions}
    random = tuple(at for name, at in symbols.items() if name in RANDOM_FUNCTIONS)
    (sections,) = struct.unpack_from("<Q", data, 0x28)
    size, count = struct.unpack_from("<HH", data, 0x3A)
    end = len(data.rstrip(b"\0"))
    room = sections if 0 < sections < end <= sections + size * count else end
    block = (room + LINE - 1) // LINE * LINE
    return VdsoImage(block, functions, random) if block + BLOCK <= len(data) else None


def _symbols(data: bytes) -> dict[str, int]:
    (table,) = struct.unpack_from("<Q", data, 0x20)
    size, count = struct.unpack_from("<HH", data, 0x36)
    base, dynamic = 0, None
    for index in range(count):
        kind, _, offset, address, _, length = struct.unpack_from(
            "<IIQQQQ", data, table + size * index
        )
        if kind == _PT_LOAD:
            base = address - offset
        elif kind == _PT_DYNAMIC:
            dynamic = (offset, length)
    if dynamic is None:
        return {}
    entries = dict(struct.iter_unpack("<QQ", data[dynamic[0] : sum(dynamic)]))
    if not {_DT_HASH, _DT_STRTAB, _DT_SYMTAB} <= entries.keys():
        return {}
    # Relocated or not, an address lies in the image.
    strings, symbols, hashes = (entries[tag] - base for tag in (_DT_STRTAB, _DT_SYMTAB, _DT_HASH))
    (number,) = struct.unpack_from("<I", data, hashes + 4)
    found = {}
    for index in range(number):
        name, _, _, section, value, _ = struct.unpack_from("<IBBHQQ", data, symbols + 24 * index)
        if section:
            end = data.index(b"\0", strings + name)
            found[data[strings + name : end].decode("ascii", "replace")] = value - base
    return found


class VdsoPatch:
    """The rewritten vDSO of one program."""

    __slots__ = ("_base", "_block", "_image", "_machine", "memory")

    def __init__(self, memory: int, base: int, image: VdsoImage, machine: Architecture) -> None:
        self.memory = memory  # a descriptor of /proc/PID/mem
        self._base = base
        self._image = image
        self._machine = machine
        self._block = base + image.block

    def install(self, monotonic: int, offset: int, *, seeded: bool) -> None:
        """Rewrite it; where `seeded`, random numbers take a system call."""
        machine = self._machine
        words = struct.pack("<QQ", monotonic, offset & 0xFFFFFFFFFFFFFFFF)
        os.pwrite(self.memory, words + machine.block[len(words) :], self._block)
        for name, at in self._image.functions.items():
            target = self._image.block + machine.functions[name].at
            os.pwrite(self.memory, machine.jump(at, target), self._base + at)
        for at in self._image.random if seeded else ():
            os.pwrite(self.memory, machine.absent, self._base + at)

    def copied_to(self, memory: int) -> "VdsoPatch":
        """Return the same for a process that fork made."""
        return VdsoPatch(memory, self._base, self._image, self._machine)

    def write(self, word: bytes) -> None:
        """Write the monotonic clock's word."""
        with contextlib.suppress(OSError):  # its memory is gone: its end comes next
            os.pwrite(self.memory, word, self._block + MONOTONIC)

    def write_offset(self, offset: int) -> None:
        """Write what real time is ahead of the monotonic clock."""
        with contextlib.suppress(OSError):
            os.pwrite(self.memory, struct.pack("<q", offset), self._block + OFFSET)

    def constant(self, at: int) -> int:
        """Return the address of a constant of the block in the program."""
        return self._block + at

    @property
    def system_call(self) -> int:
        """The address of an instruction that makes a system call."""
        return self._block + self._machine.system_call

    def trap(self, *, on: bool) -> None:
        """Let each read of the clock be a system call, or not."""
        for name in self._image.functions:
            switch = self._machine.functions[name]
            os.pwrite(self.memory, switch.slow if on else switch.fast, self._block + switch.at)
