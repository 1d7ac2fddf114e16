"""Drivers that don't stand a thousand claims."""

import threading

from referencedriver import target

from dralab.contracts.plugin import PrepareResult
from dralab.drivercheck.groups.load import AT_ONCE
from dralab.drivercheck.targets import Usage
from dralab.runtime.resources import CLAIMS
from mutants.claims import Plugin


class Counting(Plugin):
    """Counts the calls of the load checks."""

    calls = 0

    def prepare(self, claims):
        self.calls += len(claims) == AT_ONCE
        return super().prepare(claims)


class Tired(Counting):
    def answered(self, claims, answers):
        if self.calls <= 3:
            return answers
        return dict.fromkeys(answers, PrepareResult(error="enough for today"))


class Slow(Counting):
    def answered(self, claims, answers):
        if self.calls > 1:
            threading.Event().wait(6.0)
        return answers


class Littering(Counting):
    def answered(self, claims, answers):
        if len(claims) == AT_ONCE:
            (self.checkpoint.path.parent / f"{claims[0].uid}.log").touch()
        return answers


class Asking(Counting):
    def answered(self, claims, answers):
        for ref in claims if len(claims) == AT_ONCE else ():
            for _ in range(5):
                self.client.get(CLAIMS, ref.name, ref.namespace)
        return answers


def growing(**each):
    """A driver that holds more of something after each call."""

    def usage(instance):
        calls = instance.hosted.calls
        return Usage(
            **{name: each.get(name, 0) * calls for name in ("memory", "descriptors", "threads")}
        )

    return lambda: target(plugin=Counting, usage=usage)


MUTANTS = {
    "load.claims": lambda: target(plugin=Tired),
    "load.rate": lambda: target(plugin=Slow),
    "load.files": lambda: target(plugin=Littering),
    "load.requests": lambda: target(plugin=Asking),
    "load.memory": growing(memory=1024 * 1024),
    "load.descriptors": growing(descriptors=2),
    "load.threads": growing(threads=8),
}
