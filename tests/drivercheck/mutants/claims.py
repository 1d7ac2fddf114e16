"""What the drivers that prepare and unprepare wrongly have in common."""

from referencedriver import QuickServer, target

from dralab.contracts.plugin import PluginError
from dralab.drivers.hosted_plugin import HostedPlugin
from dralab.drivers.sockets import _health_handler, _plugin_handler, _registration_handler, _version


class Plugin(HostedPlugin):
    """Knows whether it is the first on its node, and what it was asked for."""

    def __init__(self, *args):
        super().__init__(*args)
        marker = self.checkpoint.path.with_name("incarnations")
        self.first = not marker.exists()
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()
        self.asked = set()
        self.prepared = set()
        self.failed = set()
        self.given_back = set()

    def prepare(self, claims):
        self.asked |= {ref.uid for ref in claims}
        found = self.answered(claims, dict(super().prepare(claims)))
        for uid, answer in found.items():
            (self.failed if answer.error else self.prepared).add(uid)
            self.given_back.discard(uid)
        return found

    def answered(self, claims, answers):
        """Change the answers to a prepare."""
        return answers

    def unprepare(self, claims):
        found = self.given(claims, dict(super().unprepare(claims)))
        self.given_back |= {ref.uid for ref in claims}
        return found

    def given(self, claims, answers):
        """Change the answers to an unprepare."""
        return answers


def of(base=Plugin, **methods):
    """A driver whose plugin has some methods of its own."""
    return lambda: target(plugin=type("Mutant", (base,), methods))


def whole_call_fails(text):
    """A driver with which one claim's error is every claim's."""

    def answered(self, claims, answers):
        for answer in answers.values():
            if text in answer.error and len(claims) > 1:
                raise PluginError(answer.error)
        return answers

    return of(answered=answered)


def with_beta(wrap):
    """A driver whose v1beta1 is another: `wrap` makes it of the plugin."""

    class Beta:
        def __init__(self, server):
            self.plugin = wrap(server.plugin)
            self.alone, self.resources = server.alone, server.resources

    class Server(QuickServer):
        def start(self):
            handlers = [_health_handler(name, self) for name in ("v1.DRAResourceHealth",)]
            handlers += [_health_handler("v1alpha1.DRAResourceHealth", self)]
            for name in self.versions:
                served = self if name == "v1.DRAPlugin" else Beta(self)
                handlers.append(_plugin_handler(_version(name), served))
            self._serve(self.endpoint, handlers)
            self._serve(self.registration, [_registration_handler(self)])

    return lambda: target(server=Server)
