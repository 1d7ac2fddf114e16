"""Reinforcement learning: `import dralab.gym`, then `gymnasium.make("dralab/Devices-v0")`.

It needs the extra `gym`; what the environment is, `DevicesEnv` says.
"""

import gymnasium

from dralab.lab.environment import DevicesEnv

__all__ = ["NAME", "DevicesEnv"]

NAME = "dralab/Devices-v0"

if NAME not in gymnasium.registry:
    gymnasium.register(id=NAME, entry_point=DevicesEnv)
