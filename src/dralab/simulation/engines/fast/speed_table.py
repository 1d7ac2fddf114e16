"""Speeds of kinds of trainings by model and number of GPUs, alone and in pairs: Gavel's format.

A JSON file of models: each has kinds such as `('LM (batch size 5)', 2)`, on so many GPUs, and these
the steps per second: `null` alone, and beside each other kind `[own, the other's]`.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from dralab.scenarios.errors import InputError
from dralab.simulation.engines.fast.rounds import GpuSlice
from dralab.simulation.json_input import JsonFile
from dralab.values.json_types import JsonObject

KEY: Final = re.compile(r"\('(.+)', (\d+)\)")


class SpeedTable:
    """Steps per second by model, kind and number of GPUs; in pairs, each beside each other kind."""

    def __init__(self, content: Mapping[str, JsonObject], file: Path) -> None:
        self._file = file
        self._alone: dict[tuple[str, str, int], float] = {}
        self._beside: dict[tuple[str, str, int, str], float] = {}
        for model, kinds in content.items():
            for text, speeds in kinds.items():
                kind, gpus = self._key(text)
                for other, speed in speeds.items():
                    if other == "null":
                        self._alone[model, kind, gpus] = float(speed)
                        continue
                    name, width = self._key(other)
                    if width == gpus:
                        self._beside[model, kind, gpus, name] = float(speed[0])

    def _key(self, text: str) -> tuple[str, int]:
        found = KEY.fullmatch(text)
        if found is None:
            raise InputError(self._file, f"{text!r} is not a kind and a number of GPUs")
        return found[1], int(found[2])

    def __call__(self, kind: str, gpus: GpuSlice) -> float:
        """Return steps per second. InputError: nobody measured them."""
        key = (gpus.model, kind, gpus.number)
        try:
            return self._beside[*key, gpus.beside[0]] if gpus.beside else self._alone[key]
        except KeyError:
            problem = f"has no speed of {kind!r} on {gpus.number} GPUs of {gpus.model}"
            raise InputError(self._file, problem) from None


def read_speeds(path: Path) -> SpeedTable:
    """Return a table. InputError: it is not one."""
    content = JsonFile(path).value
    try:
        return SpeedTable(content, path)
    except (AttributeError, TypeError, ValueError, IndexError) as error:
        raise InputError(path, f"is not a table of speeds: {error!r}") from error
