"""Steps a second of `dralab/Devices-v0` on a core (extra: gym): `python -m benchmarks.environment`.

100 nodes with 8 GPUs, 5,600 tasks an episode; first fit decides, which costs next to nothing.
"""

import time

from dralab.gym import DevicesEnv

EPISODES = 4


def steps_per_second(decide: str) -> tuple[float, float]:
    """Return the rate over all steps, and the best over 250 of them, when others do little."""
    env = DevicesEnv(decide=decide)  # type: ignore[arg-type]
    best, steps, spent = 0.0, 0, 0.0
    for seed in range(EPISODES):
        _, info = env.reset(seed=seed)
        over, count, began = False, 0, time.process_time()
        while not over:
            _, _, over, _, info = env.step(int(info["action_mask"].argmax()))
            count += 1
            if count % 250 == 0:
                took = time.process_time() - began
                best, spent, steps = max(best, 250 / took), spent + took, steps + 250
                began = time.process_time()
    return steps / spent, best


if __name__ == "__main__":
    for decide in ("place", "queue"):
        mean, best = steps_per_second(decide)
        print(f"{decide:6} {mean:8,.0f} steps/s of CPU time; best of 250 steps {best:8,.0f}")
