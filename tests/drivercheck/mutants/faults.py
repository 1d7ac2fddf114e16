"""Drivers that don't stand what goes wrong around them."""

import threading
from contextlib import contextmanager, suppress
from dataclasses import replace as replaced

from referencedriver import QuickServer, target

from dralab.api.status import ApiError
from dralab.contracts import wire
from dralab.contracts.plugin import PluginError
from dralab.drivercheck.sdk_target import MortalDirectory
from dralab.drivers.driver import AllocatedClaim
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.drivers.publishing import SlicePublisher
from dralab.drivers.sockets import _health_handler, _plugin_handler, _registration_handler, _version
from dralab.kernel.clock import SECOND, WallClock
from dralab.runtime.resources import CLAIMS, NODES
from mutants.claims import Plugin, of


def impatient():
    def before(instance):
        try:
            instance.client.list(NODES)
        except ApiError as error:
            raise SystemExit(str(error)) from error

    return target(before=before)


def lenient(reason):
    """A driver for which a claim that can't be read has no devices."""

    def fetch(self, ref):
        try:
            return HostedPlugin._fetch(self, ref)
        except ApiError as error:
            if error.reason != reason:
                raise
            return AllocatedClaim(ref=ref, results=(), configs=())

    return of(_fetch=fetch)


class Asking(Plugin):
    def unprepare(self, claims):
        for ref in claims:
            try:
                self.client.get(CLAIMS, ref.name, ref.namespace)
            except ApiError as error:
                if error.reason == "ServiceUnavailable":
                    raise PluginError(str(error)) from error
        return super().unprepare(claims)


def hasty(self, ref):
    begin = WallClock().now()
    found = HostedPlugin._fetch(self, ref)
    if WallClock().now() - begin > 1.4 * SECOND:
        raise ValueError("the server takes too long")
    return found


def discouraged(reason):
    class Publisher(SlicePublisher):
        def _sync(self, place):
            try:
                return super()._sync(place)
            except ApiError as error:
                if error.reason != reason:
                    raise
                return None

    return lambda: target(publisher=Publisher)


class Handlers(QuickServer):
    """Makes its handlers of versions that a mutant may change."""

    def version_of(self, name):
        return _version(name)

    def start(self):
        handlers = [_plugin_handler(self.version_of(name), self) for name in self.versions]
        handlers += [_health_handler(name, self) for name in wire.HEALTH_SERVICES]
        self._serve(self.endpoint, handlers)
        self._serve(self.registration, [_registration_handler(self)])

    def fall_over(self):
        threading.Thread(target=self.servers[0].stop, args=(0,)).start()


def fragile():
    class Messages:
        def __init__(self, messages, server):
            self.messages, self.server = messages, server

        def __getattr__(self, name):
            return getattr(self.messages, name)

        @property
        def NodePrepareResourcesRequest(self):  # noqa: N802 - of protobuf
            return self

        def FromString(self, data):  # noqa: N802 - of protobuf
            try:
                return self.messages.NodePrepareResourcesRequest.FromString(data)
            except Exception:
                self.server.fall_over()
                raise

    class Server(Handlers):
        def version_of(self, name):
            found = _version(name)
            return replaced(found, messages=Messages(found.messages, self))

    return target(server=Server)


def offended():
    class Server(Handlers):
        def version_of(self, name):
            found = _version(name)
            server = self

            class Version(type(found)):
                def claims_of(self, request):
                    refs = super().claims_of(request)
                    if any(not ref.name for ref in refs):
                        server.fall_over()
                    return refs

            return Version(found.name, found.messages)

    return target(server=Server)


class Held(QuickServer):
    """Lets calls run side by side."""

    @contextmanager
    def alone(self):
        yield


class Exclusive(Plugin):
    """Knows which calls are under way."""

    def __init__(self, *args):
        super().__init__(*args)
        self.under_way = []

    def prepare(self, claims):
        with self.working("prepare", claims):
            return super().prepare(claims)

    def unprepare(self, claims):
        with self.working("unprepare", claims):
            return super().unprepare(claims)

    @contextmanager
    def working(self, verb, claims):
        mine = [(verb, ref.name) for ref in claims]
        self.under_way += mine
        if len(mine) == 1:
            threading.Event().wait(0.03)
        try:
            self.judge(self.under_way)
            yield
        finally:
            for one in mine:
                self.under_way.remove(one)


class NoDuplicates(Exclusive):
    def judge(self, calls):
        if len(calls) > len(set(calls)):
            raise PluginError("this claim is being prepared")


class OneVerb(Exclusive):
    def judge(self, calls):
        if len({verb for verb, _ in calls}) > 1:
            raise PluginError("another call is under way")


class Broken(Plugin):
    """Keeps a mark on claims whose call was broken off."""

    marked = ()

    def prepare(self, claims):
        if any(ref.uid in self.marked for ref in claims):
            raise PluginError("this claim is being prepared")
        return super().prepare(claims)


def unfinished():
    class Server(Handlers):
        def start(self):
            self.plugin.marked = set()
            super().start()

        def version_of(self, name):
            found = _version(name)
            server = self

            class Version(type(found)):
                def claims_of(self, request):
                    # The call itself: its context knows whether somebody still waits.
                    server.refs = super().claims_of(request)
                    return server.refs

            return Version(found.name, found.messages)

        @contextmanager
        def alone(self):
            import inspect

            frame = inspect.currentframe().f_back.f_back
            context = frame.f_locals["context"]
            if frame.f_code.co_name == "prepare":
                uids = {claim.uid for claim in frame.f_locals["request"].claims}
                threading.Event().wait(0.03)
                if not context.is_active():
                    self.plugin.marked |= uids
            with super().alone():
                yield

    return target(server=Server, plugin=Broken)


def swallowing():
    class Directory(MortalDirectory):
        def write(self, name, spec):
            with suppress(NotADirectoryError, FileExistsError):
                super().write(name, spec)

    return target(directory=Directory)


def demanding():
    class Directory(MortalDirectory):
        def write(self, name, spec):
            if not self.path.exists():
                raise OSError(f"{self.path} does not exist")
            super().write(name, spec)

    return target(directory=Directory)


MUTANTS = {
    "faults.api-gone-at-start": impatient,
    "faults.api-gone": lenient("ServiceUnavailable"),
    "faults.api-gone-unprepare": lambda: target(plugin=Asking),
    "faults.api-slow": of(_fetch=hasty),
    "faults.claim-forbidden": lenient("Forbidden"),
    "faults.claim-error": lenient("InternalError"),
    "faults.slices-conflict": discouraged("Conflict"),
    "faults.slices-busy": discouraged("TooManyRequests"),
    "faults.slices-error": discouraged("InternalError"),
    "faults.slices-forbidden": discouraged("Forbidden"),
    "faults.cancelled": unfinished,
    "faults.duplicates": lambda: target(server=Held, plugin=NoDuplicates),
    "faults.both-at-once": lambda: target(server=Held, plugin=OneVerb),
    "faults.malformed": fragile,
    "faults.nameless": offended,
    "faults.cdi-unwritable": swallowing,
    "faults.cdi-missing": demanding,
}
