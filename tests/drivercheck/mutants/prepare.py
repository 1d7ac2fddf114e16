"""Drivers that prepare wrongly."""

import threading
from contextlib import contextmanager
from dataclasses import replace

from referencedriver import CONFIG, Lamps, QuickServer, target

from dralab.api.status import ApiError
from dralab.contracts.cdi import CdiDevice
from dralab.contracts.plugin import PluginError, PrepareResult
from dralab.drivercheck.sdk_target import MortalDirectory
from dralab.drivers.driver import AllocatedClaim, AllocatedDevice, PrepareError
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.runtime.resources import CLAIMS
from mutants.claims import Plugin, of, whole_call_fails, with_beta


def changed(change, when=lambda answer: True):
    """A driver whose answers have other devices."""

    def answered(self, claims, answers):
        return {
            uid: replace(answer, devices=tuple(map(change, answer.devices)))
            if when(answer) and not answer.error
            else answer
            for uid, answer in answers.items()
        }

    return of(answered=answered)


def without_last_claim(self, claims, answers):
    if len(claims) == 2:
        answers.pop(claims[-1].uid)
    return answers


def with_another_claim(self, claims, answers):
    return answers | {"0": PrepareResult()} if claims else answers


def refusing_nothing(self, claims, answers):
    if not claims:
        raise PluginError("no claims")
    return answers


def first_device_only(self, claims, answers):
    return {uid: replace(answer, devices=answer.devices[:1]) for uid, answer in answers.items()}


def with_slash(self, claims, answers):
    def of_alternative(uid):
        [ref] = [ref for ref in claims if ref.uid == uid]
        return "/" in self._fetch(ref).results[0].request

    return {
        uid: replace(
            answer,
            devices=tuple(replace(d, requests=(f"{d.requests[0]}/x",)) for d in answer.devices),
        )
        if not answer.error and of_alternative(uid)
        else answer
        for uid, answer in answers.items()
    }


class Beta:
    def __init__(self, plugin):
        self.plugin = plugin

    def prepare(self, claims):
        return {
            uid: replace(
                answer, devices=tuple(replace(d, cdi_ids=d.cdi_ids[:1]) for d in answer.devices)
            )
            for uid, answer in self.plugin.prepare(claims).items()
        }

    def unprepare(self, claims):
        return self.plugin.unprepare(claims)


def other_answer(self, claims, answers):
    return {
        uid: replace(
            answer, devices=tuple(replace(d, cdi_ids=d.cdi_ids[::-1]) for d in answer.devices)
        )
        if uid in self.prepared
        else answer
        for uid, answer in answers.items()
    }


def writing_once():
    class Directory(MortalDirectory):
        def __init__(self, *args):
            super().__init__(*args)
            self.written = set()

        def write(self, name, spec):
            if name not in self.written:
                super().write(name, spec)
            if "common" not in name:
                self.written.add(name)

        def remove(self, name):
            super().remove(name)
            self.written.discard(name)

    return target(directory=Directory)


def resentful(self, claims, answers):
    refused = self.__dict__.setdefault("refused", set())
    refused |= {uid for uid, answer in answers.items() if "not allocated" in answer.error}
    return {
        uid: PrepareResult(error="not again") if uid in refused else answer
        for uid, answer in answers.items()
    }


def any_uid(self, ref):
    try:
        return HostedPlugin._fetch(self, ref)
    except ValueError as error:
        if "got replaced" not in str(error):
            raise
        claim = self.client.get(CLAIMS, ref.name, ref.namespace)
        uid = claim["metadata"]["uid"]
        return replace(HostedPlugin._fetch(self, replace(ref, uid=uid)), ref=ref)


def lenient(text):
    """A `_fetch` that takes a claim that is not what it should be for one without devices."""

    def fetch(self, ref):
        try:
            return HostedPlugin._fetch(self, ref)
        except (ValueError, ApiError) as error:
            if text not in str(error):
                raise
            return AllocatedClaim(ref=ref, results=(), configs=())

    return fetch


class Credulous(Lamps):
    def prepare(self, claim):
        return {result: self.edits(claim, result) for result in claim.results}


class Uncritical(Lamps):
    def edits(self, claim, result):
        return super().edits(replace(claim, configs=()), result)


def reading_all_configs(self, ref):
    claim = self.client.get(CLAIMS, ref.name, ref.namespace)
    allocation = (claim.get("status") or {}).get("allocation") or {}
    for config in allocation.get("devices", {}).get("config") or ():
        if config["opaque"]["parameters"].get("apiVersion") != CONFIG:
            raise ValueError("these parameters are not known")
    return HostedPlugin._fetch(self, ref)


def taking_all_results(self, ref):
    found = HostedPlugin._fetch(self, ref)
    claim = self.client.get(CLAIMS, ref.name, ref.namespace)
    results = claim["status"]["allocation"]["devices"]["results"]
    others = tuple(
        AllocatedDevice(
            request=each["request"],
            driver=each["driver"],
            pool=each["pool"],
            device=each["device"],
        )
        for each in results
        if each["driver"] != self.driver
    )
    return replace(found, results=found.results + others)


class Greedy(Credulous):
    def prepare(self, claim):
        known = {device["name"] for part in self.inventory() for device in part.devices}
        for result in claim.results:
            if result.device not in known and result.driver == self.name:
                raise PrepareError(f"requested device is not allocatable: {result.device}")
        return super().prepare(claim)


def jealous(self, claim, held):
    HostedPlugin._refuse_taken(self, claim, held)
    taken = {device for other in held.values() for device in other.devices}
    for result in claim.results:
        if result.admin_access and f"{result.pool}/{result.device}" in taken:
            raise PrepareError(f"{result.device} is taken")


def by_name(self, claims, answers):
    known = self.__dict__.setdefault("known", {})
    for ref in claims:
        namespace, answer = known.setdefault(ref.name, (ref.namespace, answers[ref.uid]))
        if namespace != ref.namespace:
            answers[ref.uid] = answer
    return answers


def short_names(self, claims, answers):
    for ref in claims:
        if len(ref.name) > 200:
            answers[ref.uid] = PrepareResult(error="file name too long")
    return answers


def littering():
    class Directory(MortalDirectory):
        def write(self, name, spec):
            super().write(name, spec)
            (self.path / "broken.yaml").write_text("cdiVersion: 9.9.9\nkind: a/b\n")

    return target(directory=Directory)


def unscoped():
    class Directory(MortalDirectory):
        def write(self, name, spec):
            devices = tuple(
                device
                if device.name == "common"
                else CdiDevice(device.name[37:], device.edits, device.annotations)
                for device in spec.devices
            )
            super().write(name, replace(spec, devices=devices))

    class Mutant(Plugin):
        def answered(self, claims, answers):
            def ids(device):
                kind, _, name = device.cdi_ids[0].partition("=")
                return replace(device, cdi_ids=(f"{kind}={name[37:]}", *device.cdi_ids[1:]))

            return {
                uid: replace(answer, devices=tuple(map(ids, answer.devices)))
                for uid, answer in answers.items()
            }

    return target(directory=Directory, plugin=Mutant)


def slow(self, claims, answers):
    if len(claims) == 6:
        threading.Event().wait(11.0)
    return answers


def overtaxed(verb):
    """A driver that fails where three claims are prepared, or unprepared, at once."""

    class Server(QuickServer):
        @contextmanager
        def alone(self):
            yield

    class Mutant(Plugin):
        def __init__(self, *args):
            super().__init__(*args)
            self.busy = set()

        def prepare(self, claims):
            with self.working("prepare", claims):
                return super().prepare(claims)

        def unprepare(self, claims):
            with self.working("unprepare", claims):
                return super().unprepare(claims)

        @contextmanager
        def working(self, what, claims):
            names = {ref.name for ref in claims}
            if what == verb and len(names) == 1:
                self.busy |= names
                threading.Event().wait(0.05)
                if len(self.busy) >= 3:
                    raise PluginError("too much at once")
            try:
                yield
            finally:
                self.busy -= names

    return lambda: target(server=Server, plugin=Mutant)


def ids(*more):
    return lambda device: replace(device, cdi_ids=(*device.cdi_ids, *more))


def two(answer):
    return len(answer.devices) == 2


def lone(answer):
    return [device.device for device in answer.devices] == ["lamp-0"]


MUTANTS = {
    "prepare.devices": changed(lambda device: replace(device, pool="pool"), lone),
    "prepare.every-claim": of(answered=without_last_claim),
    "prepare.no-other-claim": of(answered=with_another_claim),
    "prepare.no-claims": of(answered=refusing_nothing),
    "prepare.several-devices": of(answered=first_device_only),
    "prepare.request-names": changed(lambda device: replace(device, requests=("rx",)), two),
    "prepare.subrequests": of(answered=with_slash),
    "prepare.versions-agree": with_beta(Beta),
    "prepare.again": of(answered=other_answer),
    "prepare.again-restores": writing_once,
    "prepare.after-failure": of(answered=resentful),
    "prepare.wrong-uid": of(_fetch=any_uid),
    "prepare.wrong-uid-alone": whole_call_fails("got replaced"),
    "prepare.unallocated": of(_fetch=lenient("not allocated")),
    "prepare.unallocated-alone": whole_call_fails("not allocated"),
    "prepare.missing": of(_fetch=lenient("not found")),
    "prepare.unknown-device": lambda: target(Credulous),
    "prepare.unknown-device-alone": whole_call_fails("not allocatable"),
    "prepare.bad-config": lambda: target(Uncritical),
    "prepare.bad-config-alone": whole_call_fails("no kind"),
    "prepare.foreign-config": of(_fetch=reading_all_configs),
    "prepare.foreign-results": lambda: target(
        Greedy, plugin=type("Mutant", (Plugin,), {"_fetch": taking_all_results})
    ),
    "prepare.exclusive": of(_refuse_taken=lambda self, claim, held: None),
    "prepare.admin-access": of(_refuse_taken=jealous),
    "prepare.shares": changed(lambda device: replace(device, share_id="")),
    "prepare.same-name": of(answered=by_name),
    "prepare.long-name": of(answered=short_names),
    "prepare.cdi-names": changed(ids("lamp")),
    "prepare.cdi-resolved": changed(ids("k8s.reference.dralab.dev/lamp=none")),
    "prepare.cdi-valid": littering,
    "prepare.cdi-of-claim": unscoped,
    "prepare.cdi-own-first": changed(lambda d: replace(d, cdi_ids=d.cdi_ids[::-1])),
    "prepare.in-time": of(answered=slow),
    "prepare.parallel": overtaxed("prepare"),
}
