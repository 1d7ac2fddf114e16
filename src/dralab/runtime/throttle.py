"""The request rate of a client: an average per second, with bursts.

Source: client-go `flowcontrol.NewTokenBucketRateLimiter` (`--kube-api-qps`, `--kube-api-burst`).
"""

import threading

from dralab.kernel.clock import SECOND, Clock, WallClock


class Throttle:
    """Lets `burst` requests pass at once, and `qps` a second on average; any thread may ask.

    >>> from dralab.kernel.clock import ManualClock
    >>> throttle = Throttle(5, 2, ManualClock(0))
    >>> throttle.delay(), throttle.delay(), throttle.delay(), throttle.delay()
    (0.0, 0.0, 0.2, 0.4)
    """

    def __init__(self, qps: float, burst: int, clock: Clock | None = None) -> None:
        self.qps = qps
        self.burst = burst
        self._clock = clock or WallClock()
        self._lock = threading.Lock()
        self._left = float(burst)
        self._at = self._clock.now()

    def delay(self) -> float:
        """Count one request; return the seconds to wait before it is sent."""
        with self._lock:
            now = self._clock.now()
            passed = max(now - self._at, 0) / SECOND  # a wall clock may be set back
            self._left = min(self.burst, self._left + passed * self.qps) - 1
            self._at = now
            return max(0.0, -self._left / self.qps)
