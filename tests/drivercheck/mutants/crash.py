"""Drivers that don't survive crashes and updates."""

import threading

import orjson
from referencedriver import QuickServer, target

from dralab.api.status import ApiError
from dralab.contracts.cdi import file_name
from dralab.contracts.plugin import PluginError
from dralab.drivercheck.sdk_target import MortalCheckpoint
from dralab.drivercheck.sockets import sockets_in
from dralab.drivers.checkpoint import DriverFileCheckpoint, MemoryCheckpoint
from dralab.drivers.publishing import SlicePublisher
from dralab.runtime.resources import CLAIMS
from mutants.claims import Plugin, of
from mutants.slices import marked


def shy():
    class Server(QuickServer):
        def _serve(self, path, handlers):
            if path.exists():
                raise SystemExit("the address is in use")
            super()._serve(path, handlers)

    return target(server=Server)


def changing(self, claims, answers):
    from dataclasses import replace

    if self.first:
        return answers
    return {
        uid: replace(a, devices=tuple(replace(d, cdi_ids=d.cdi_ids[:1]) for d in a.devices))
        for uid, a in answers.items()
    }


def tell_pod(instance):
    instance.hosted.pod_uid = instance.pod_uid


def only_own(with_pod):
    """A driver that gives back only what this instance has prepared."""

    class Mutant(Plugin):
        def unprepare(self, claims):
            try:
                self.checkpoint.load()
            except ValueError:
                return super().unprepare(claims)
            if bool(self.pod_uid) is with_pod and not {ref.uid for ref in claims} <= self.asked:
                return {ref.uid: "" for ref in claims}
            return super().unprepare(claims)

    return lambda: target(plugin=Mutant, before=tell_pod)


def forgetting():
    class Checkpoint(MortalCheckpoint):
        def __init__(self, *args):
            super().__init__(*args)
            self.memory = MemoryCheckpoint()

        def load(self):
            return self.memory.load()

        def save(self, claims):
            super().save(claims)
            self.memory.save(claims)

    return target(checkpoint=Checkpoint)


def locked(verb):
    """A driver whose lock outlives it."""

    class Mutant(Plugin):
        def locking(self, claims, what, call):
            lock = self.checkpoint.path.with_name("lock")
            if what != verb or len(claims) != 1:
                return call(claims)
            if lock.exists():
                raise PluginError("another call is under way")
            lock.touch()
            threading.Event().wait(0.05)
            try:
                found = call(claims)
            except Exception:
                lock.unlink()
                raise
            self.checkpoint.life.check()
            lock.unlink()
            return found

        def prepare(self, claims):
            return self.locking(claims, "prepare", super().prepare)

        def unprepare(self, claims):
            return self.locking(claims, "unprepare", super().unprepare)

    return lambda: target(plugin=Mutant)


def strict(empty):
    def before(instance):
        path = instance.hosted.checkpoint.path
        if not path.exists() or (path.stat().st_size == 0) is not empty:
            return
        try:
            instance.hosted.checkpoint.load()
        except ValueError as error:
            raise SystemExit(str(error)) from error

    return lambda: target(before=before)


def other_format(*, reads_old):
    class Checkpoint(MortalCheckpoint):
        def load(self):
            if not self.path.exists():
                return {}
            try:
                document = orjson.loads(self.path.read_bytes())
                if "v2" in document:
                    aside = DriverFileCheckpoint(self.path.with_name("aside"))
                    aside.path.write_bytes(orjson.dumps(document["v2"]))
                    try:
                        return aside.load()
                    finally:
                        aside.path.unlink()
            except orjson.JSONDecodeError:
                return super().load()
            if not reads_old:
                raise ValueError("the checkpoint is of version 1")
            return super().load()

        def save(self, claims):
            aside = DriverFileCheckpoint(self.path.with_name("new"))
            aside.save(claims)
            document = orjson.loads(aside.path.read_bytes())
            document = {"v2": document} if reads_old else {**document, "v2": document}
            aside.path.write_bytes(orjson.dumps(document))
            self.life.check()
            aside.path.replace(self.path)

    return lambda: target(checkpoint=Checkpoint)


class Trusting(Plugin):
    def _prepare(self, claim, held):
        if self.first or claim.ref.uid not in held:
            return super()._prepare(claim, held)
        write, self.directory.write = self.directory.write, lambda *_: None
        try:
            return super()._prepare(claim, held)
        finally:
            self.directory.write = write


class Missing(Plugin):
    def unprepare(self, claims):
        try:
            held = self.checkpoint.load()
        except ValueError:
            held = {}
        for ref in claims:
            path = self.directory.path / file_name(self.kind, ref.uid)
            if not self.first and ref.uid in held and not path.exists():
                return {ref.uid: f"{path} is not there" for ref in claims}
        return super().unprepare(claims)


class Asking(Plugin):
    def unprepare(self, claims):
        for ref in claims:
            try:
                self.client.get(CLAIMS, ref.name, ref.namespace)
            except ApiError as error:
                if not self.first and error.reason == "NotFound":
                    return {ref.uid: "the claim does not exist" for ref in claims}
        return super().unprepare(claims)


def giving_up():
    class Publisher(SlicePublisher):
        given_up = None

        def _sync(self, place):
            held = self.slices.find("pool", f"{place.driver}/{place.node}")
            if self.given_up is None and self.again:
                count = held[0]["spec"]["pool"]["resourceSliceCount"] if held else 0
                self.given_up = len(held) < count
            return None if self.given_up else super()._sync(place)

    def before(instance):
        instance.publisher.again = marked(instance)
        if not instance.publisher.again:
            create = instance.client.create

            def slowly(*args, **options):
                found = create(*args, **options)
                threading.Event().wait(0.05)
                return found

            instance.client.create = slowly

    return target(publisher=Publisher, before=before)


def cleaning_up():
    def stop(instance):
        for path in instance.places.cdi.glob("*_????????-*"):
            path.unlink()
        return instance.end()

    return target(stop=stop)


def sweeping():
    def stop(instance):
        code = instance.end()
        for path in sockets_in(instance.places.root):
            path.unlink()
        return code

    return target(stop=stop)


def once_a_boot():
    """A driver that keeps the boot id with a claim, and refuses claims of earlier boots."""

    def of_boot(instance):
        instance.hosted.boot_id = instance.places.boot_id.read_text()

    class Mutant(Plugin):
        def answered(self, claims, answers):
            path = self.checkpoint.path.parents[2] / "boot_of_claims"
            if not path.exists():
                path.write_text(self.boot_id)
            if path.read_text() != self.boot_id:
                raise PluginError("the claims are of an earlier boot")
            return answers

    return target(plugin=Mutant, before=of_boot)


def in_order():
    """A driver that refuses to start when its checkpoint is of the future."""

    def look(instance):
        if instance.places.clock_offset < 0 and instance.hosted.checkpoint.load():
            raise SystemExit("the checkpoint is newer than the clock")

    return target(before=look)


MUTANTS = {
    "crash.stale-sockets": shy,
    "crash.prepared": of(answered=changing),
    "crash.unprepare": only_own(with_pod=False),
    "crash.exclusive": forgetting,
    "crash.during-prepare": locked("prepare"),
    "crash.during-unprepare": locked("unprepare"),
    "crash.checkpoint-damaged": strict(empty=False),
    "crash.checkpoint-empty": strict(empty=True),
    "crash.upgrade": other_format(reads_old=False),
    "crash.downgrade": other_format(reads_old=True),
    "crash.reboot": lambda: target(plugin=Trusting),
    "crash.reboot-unprepare": lambda: target(plugin=Missing),
    "crash.boot-id": once_a_boot,
    "crash.clock": in_order,
    "crash.claim-gone": lambda: target(plugin=Asking),
    "crash.publishing": giving_up,
    "crash.stop-keeps-claims": cleaning_up,
    "crash.two-instances": only_own(with_pod=True),
    "crash.update": sweeping,
}
