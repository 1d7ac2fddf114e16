"""Random bytes from a seed, by every way in which programs get them from the kernel.

Each program has a stream of its own, by its name and how many of that name came before: getrandom
answers from it, so do the 16 bytes that exec leaves in its memory, and the files below.
"""

import errno
import fcntl
import os
import select
import struct
import termios
import uuid
from collections import Counter
from pathlib import Path
from random import Random
from typing import Final

from dralab.files.owned import OwnedDirectory
from dralab.kernel.randomness import Randomness
from dralab.virtualtime.machine import SCRATCH
from dralab.virtualtime.programs import TracedProcess
from dralab.virtualtime.threads import TracedThread
from dralab.virtualtime.vdso import random_address

MOST: Final = 1 << 16  # bytes of one getrandom, and in a pipe
LONGEST_PATH: Final = 32
PATHS: Final = {"open": 0, "openat": 1, "openat2": 1}  # the argument with the path
DEVICES: Final = frozenset({b"/dev/urandom", b"/dev/random"})
BOOT_ID: Final = b"/proc/sys/kernel/random/boot_id"
UUID: Final = b"/proc/sys/kernel/random/uuid"


class SeededChance:
    """The random bytes of all programs under a clock."""

    def __init__(self, seed: int) -> None:
        self._seeds = Randomness(seed)
        self._boot = self._seeds.uuid("boot")
        self._loads: Counter[str] = Counter()  # of programs, by name
        self._directory: OwnedDirectory | None = None
        self._files = 0
        self._pipes: dict[int, Random] = {}  # our ends of those that programs read from

    def loaded(self, process: TracedProcess, auxv: bytes) -> None:
        """Give a program that has just been loaded its stream."""
        name = process.name()
        self._loads[name] += 1
        process.random = self._seeds.stream(f"{name}/{self._loads[name]}")
        if (place := random_address(auxv)) is not None:
            process.write(place, process.random.randbytes(16))

    def answer(self, process: TracedProcess, address: int, size: int) -> int | None:
        """Write the bytes of a getrandom; return its result, None if the kernel should answer."""
        if process.random is None:
            return None
        data = process.random.randbytes(min(size, MOST))
        return len(data) if process.write(address, data) else -errno.EFAULT

    def open(self, thread: TracedThread, name: str) -> int | None:
        """Let a thread open a file of ours where it asks for one with random bytes.

        Returns its status when the call is over, or None if it asks for another file.
        """
        process, registers = thread.process, thread.registers
        arguments, argument = registers.arguments, PATHS[name]
        path = process.read(arguments[argument], LONGEST_PATH).partition(b"\0")[0]
        if process.random is None or process.patch is None:
            return None
        pipe = -1
        if path in DEVICES:
            # A pipe: several readers may share it, and a program may read without end.
            file = self._new_path()
            os.mkfifo(file)
            pipe = os.open(file, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
        elif path == BOOT_ID:
            file = self._new_path()
            file.write_text(f"{self._boot}\n", encoding="ascii")
        elif path == UUID:
            file = self._new_path()
            number = uuid.UUID(int=process.random.getrandbits(128), version=4)
            file.write_text(f"{number}\n", encoding="ascii")
        else:
            return None
        file.chmod(0o644)
        place = process.patch.constant(SCRATCH)
        process.write(place, os.fsencode(file) + b"\0")
        registers.set_argument(argument, place)
        registers.store()
        status = thread.finish_call(arguments)
        file.unlink()
        if pipe >= 0:
            ours = os.open(f"/proc/self/fd/{pipe}", os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            os.close(pipe)
            self._pipes[ours] = Random(process.random.getrandbits(128))  # noqa: S311  # seeded
            self.refill()
        return status

    def refill(self) -> bool:
        """Fill what programs have read from; return whether one may have waited for that."""
        waited = False
        for pipe, random in list(self._pipes.items()):
            poll = select.poll()
            poll.register(pipe, 0)
            if poll.poll(0):  # nobody reads from it any more
                os.close(pipe)
                del self._pipes[pipe]
                continue
            (unread,) = struct.unpack("i", fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)))
            if unread <= MOST // 2:
                waited = waited or not unread
                os.write(pipe, random.randbytes(MOST // 2))
        return waited

    def _new_path(self) -> Path:
        if self._directory is None:
            self._directory = OwnedDirectory.new("random", Path("/tmp"))  # noqa: S108  # short
            self._directory.path.chmod(0o711)  # for programs that change their user
        self._files += 1
        return self._directory.path / str(self._files)

    def close(self) -> None:
        """Close the files."""
        for pipe in self._pipes:
            os.close(pipe)
        self._pipes.clear()
        if self._directory is not None:
            self._directory.close()
