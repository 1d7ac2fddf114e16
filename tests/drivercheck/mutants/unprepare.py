"""Drivers that unprepare wrongly."""

from dataclasses import replace

from referencedriver import target

from dralab.api.status import ApiError
from dralab.contracts.cdi import file_name, read
from dralab.contracts.plugin import PluginError
from dralab.drivercheck.sdk_target import MortalDirectory
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.runtime.resources import CLAIMS
from mutants.claims import Plugin, of, with_beta
from mutants.prepare import overtaxed


def refusing(which, text="busy"):
    """A driver that does not give some claims back."""

    def given(self, claims, answers):
        return {ref.uid: text if which(self, ref) else answers[ref.uid] for ref in claims}

    return of(given=given)


class Remembering(Plugin):
    """Knows how many devices each claim had."""

    def prepare(self, claims):
        found = super().prepare(claims)
        counts = self.__dict__.setdefault("counts", {})
        counts.update({uid: len(answer.devices) for uid, answer in found.items()})
        return found

    def given(self, claims, answers):
        counts = self.__dict__.setdefault("counts", {})
        return {ref.uid: "busy" if counts.get(ref.uid) == 2 else "" for ref in claims}


def without_last_claim(self, claims, answers):
    if len(claims) == 2:
        answers.pop(claims[-1].uid)
    return answers


def with_another_claim(self, claims, answers):
    return answers | {"0": ""} if claims else answers


def refusing_nothing(self, claims, answers):
    if not claims:
        raise PluginError("no claims")
    return answers


def is_gone(self, ref):
    try:
        self.client.get(CLAIMS, ref.name, ref.namespace)
    except ApiError as error:
        return self.first and error.reason == "NotFound"
    return False


def graveyard():
    class Directory(MortalDirectory):
        buried = ()

        def write(self, name, spec):
            back = {device.name for device in spec.devices}
            if name != "graveyard.yaml" and any(d.name in back for d in self.buried):
                self.buried = tuple(d for d in self.buried if d.name not in back)
                (self.path / "graveyard.yaml").unlink()
            super().write(name, spec)

        def remove(self, name):
            path = self.path / name
            if path.exists() and not (self.path.parent / "marker").exists():
                spec = read(path.read_text())
                self.buried = (*self.buried, *spec.devices)
                self.write("graveyard.yaml", replace(spec, devices=self.buried))
            super().remove(name)

    class Mutant(Plugin):
        def __init__(self, *args):
            super().__init__(*args)
            if not self.first:
                (self.directory.path.parent / "marker").touch()

    return target(directory=Directory, plugin=Mutant)


def known(plugin):
    """The claims of a checkpoint; none if it can't be read."""
    try:
        return plugin.checkpoint.load()
    except ValueError:
        return {}


def taking_all(self, claims):
    held = known(self)
    if len(held) == 2 and len(claims) == 1 and claims[0].uid in held:
        for uid in held:
            self.directory.remove(file_name(self.kind, uid))
    return Plugin.unprepare(self, claims)


def by_name(self, claims):
    held = known(self)
    names = {ref.name for ref in claims}
    for uid, one in held.items():
        if one.ref.name in names:
            self.directory.remove(file_name(self.kind, uid))
    return Plugin.unprepare(self, claims)


def holding_on(self, claims):
    held = dict(known(self)) if self.first else {}
    answers = Plugin.unprepare(self, claims)
    if held:
        self.checkpoint.save(held)
    return answers


def forgetful(self, claims, answers):
    again = {uid for uid in answers if uid in self.given_back}
    return {
        uid: replace(answer, error="it was given back", devices=()) if uid in again else answer
        for uid, answer in answers.items()
    }


class Beta:
    def __init__(self, plugin):
        self.plugin = plugin

    def prepare(self, claims):
        return self.plugin.prepare(claims)

    def unprepare(self, claims):
        return {ref.uid: "" for ref in claims}


def untidy():
    class Mutant(HostedPlugin):
        def _prepare(self, claim, held):
            for result in claim.results:
                (self.checkpoint.path.parent / f"{result.device}.done").touch()
            return super()._prepare(claim, held)

    return target(plugin=Mutant)


MUTANTS = {
    "unprepare.prepared": lambda: target(plugin=Remembering),
    "unprepare.every-claim": of(given=without_last_claim),
    "unprepare.no-other-claim": of(given=with_another_claim),
    "unprepare.no-claims": of(given=refusing_nothing),
    "unprepare.unknown": refusing(lambda self, ref: self.first and ref.uid not in self.asked),
    "unprepare.again": refusing(lambda self, ref: ref.uid in self.given_back),
    "unprepare.claim-gone": refusing(is_gone),
    "unprepare.cdi-removed": graveyard,
    "unprepare.others-kept": of(unprepare=taking_all),
    "unprepare.by-uid": of(unprepare=by_name),
    "unprepare.device-again": of(unprepare=holding_on),
    "unprepare.claim-again": of(answered=forgetful),
    "unprepare.failed-prepare": refusing(lambda self, ref: ref.uid in self.failed),
    "unprepare.other-version": with_beta(Beta),
    "unprepare.nothing-left": untidy,
    "unprepare.parallel": overtaxed("unprepare"),
}
