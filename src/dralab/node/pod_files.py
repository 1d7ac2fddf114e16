"""The files of one pod's volumes over its life: rewritten when their sources have changed.

What is in them is decided in `volume_files`.
"""

from collections.abc import Sequence
from functools import partial
from typing import Final

from dralab.kernel.clock import SECOND
from dralab.node.container_environment import ConfigError
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import ContainerStartError, VolumeFile
from dralab.node.node_context import NodeContext
from dralab.node.volume_files import TokenCache, changing, files_of
from dralab.values.json_types import JsonDict

# How old they may become; a kubelet looks once a minute.
FRESH: Final = 10 * SECOND


class PodFiles:
    """Reads and refreshes the files of a pod."""

    def __init__(self, node: NodeContext) -> None:
        self.node = node
        self.tokens = TokenCache(node.clock)
        self._until = node.clock.now() + FRESH
        self._told = ""

    def of(self, pod: JsonDict, volume: str) -> dict[str, VolumeFile]:
        """Return the files of a volume. ConfigError names what is missing."""
        return files_of(self.node.client, pod, volume, self.tokens)

    def refresh(self, pod: JsonDict, containers: Sequence[RunningContainer]) -> list[int]:
        """Write changed files; return in how many nanoseconds to check again."""
        volumes = changing(pod)
        if not volumes or not any(getattr(each.container, "real", False) for each in containers):
            return []
        if (left := self._until - self.node.clock.now()) > 0:
            return [left]
        for volume in volumes:
            try:
                self.node.runtime.refresh_files(
                    pod["metadata"]["uid"], volume, partial(self.of, pod, volume)
                )
            except (ConfigError, ContainerStartError) as error:
                self._warn(pod, f'MountVolume.SetUp failed for volume "{volume}" : {error}')
        self._until = self.node.clock.now() + FRESH
        return [FRESH]

    def _warn(self, pod: JsonDict, text: str) -> None:
        if text != self._told:
            self._told = text
            self.node.recorder.event(pod, "Pod", "FailedMount", text, type="Warning")
