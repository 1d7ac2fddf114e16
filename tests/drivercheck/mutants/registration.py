"""Drivers that register wrongly."""

import threading
from contextlib import suppress

from referencedriver import QuickServer, target

from dralab.contracts import wire


def saying(**fields):
    """A driver that says something else of itself."""

    class Server(QuickServer):
        def info(self):
            found = super().info()
            told = {name: make(found) if callable(make) else make for name, make in fields.items()}
            for name in told:
                found.ClearField(name)
            return type(found)(
                **{name: value for name, value in as_dict(found).items() if name not in told},
                **told,
            )

    return target(server=Server)


def as_dict(info):
    return {
        "type": info.type,
        "name": info.name,
        "endpoint": info.endpoint,
        "supported_versions": list(info.supported_versions),
    }


def hidden():
    class Server(QuickServer):
        def __init__(self, *args, **options):
            super().__init__(*args, **options)
            self.registration = self.registration.with_name("." + self.registration.name)

    return target(server=Server)


def half_served():
    class Server(QuickServer):
        def start(self):
            self.versions = ("v1.DRAPlugin",)
            super().start()
            self.versions = tuple(wire.PLUGIN_SERVICES)

    return target(server=Server)


def oldest_first():
    class Server(QuickServer):
        def __init__(self, *args, **options):
            super().__init__(*args, **options, versions=("v1beta1.DRAPlugin", "v1.DRAPlugin"))

    return target(server=Server)


def elsewhere():
    class Server(QuickServer):
        def __init__(self, plugin, root, **options):
            super().__init__(plugin, root, **options)
            self.endpoint = root / "elsewhere" / self.endpoint.name

        def start(self):
            self.directory.mkdir(parents=True, exist_ok=True)  # for its lock
            super().start()

    return target(server=Server)


def public():
    class Server(QuickServer):
        def start(self):
            super().start()
            self.endpoint.chmod(0o777)

    return target(server=Server)


def slow_info():
    class Server(QuickServer):
        def info(self):
            threading.Event().wait(2.0)
            return super().info()

    return target(server=Server)


def once():
    class Server(QuickServer):
        def on_status_reported(self, status):
            if status.plugin_registered and self.registered.is_set():
                raise RuntimeError("registered already")
            super().on_status_reported(status)

    return target(server=Server)


def offended():
    class Server(QuickServer):
        def on_status_reported(self, status):
            super().on_status_reported(status)
            if not status.plugin_registered:
                with suppress(OSError):
                    self.registration.unlink()
                threading.Thread(target=self.servers[-1].stop, args=(0,)).start()

    return target(server=Server)


def for_few():
    class Server(QuickServer):
        options = (("grpc.max_allowed_incoming_connections", 3),)

    return target(server=Server)


def late():
    class Server(QuickServer):
        def _serve(self, path, handlers):
            if path == self.endpoint:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.unlink(missing_ok=True)
                threading.Timer(0.2, super()._serve, (path, handlers)).start()
            else:
                super()._serve(path, handlers)

    return target(server=Server)


def yes_to_all():
    class Server(QuickServer):
        def _serve(self, path, handlers):
            super()._serve(path, [*handlers, Everything()])

    class Everything(wire.grpc().GenericRpcHandler):
        def service(self, _details):
            return wire.grpc().unary_unary_rpc_method_handler(lambda _request, _context: b"")

    return target(server=Server)


def untidy():
    class Server(QuickServer):
        def stop(self):
            from dralab.drivercheck.sdk_target import _leave_behind

            super().stop()
            _leave_behind(self.endpoint)

    return target(server=Server)


def ending_badly():
    def stop(instance):
        instance.end()
        return 1

    return target(stop=stop)


def sharing_sockets():
    class Server(QuickServer):
        def __init__(self, *args, **options):
            super().__init__(*args, **{**options, "pod_uid": ""})

    return target(server=Server)


MUTANTS = {
    "registration.socket-name": hidden,
    "registration.type": lambda: saying(type="CSIPlugin"),
    "registration.name": lambda: saying(name="Reference.dralab.dev"),
    "registration.name-of-slices": lambda: saying(name="other.dralab.dev"),
    "registration.versions": lambda: saying(
        supported_versions=lambda info: [
            "v9.DRAPlugin",
            *(name for name in info.supported_versions if "Health" in name),
        ]
    ),
    "registration.versions-served": half_served,
    "registration.newest-first": oldest_first,
    "registration.versions-once": lambda: saying(
        supported_versions=lambda info: [*info.supported_versions, info.supported_versions[0]]
    ),
    "registration.endpoint-absolute": lambda: saying(endpoint=lambda i: f"unix://{i.endpoint}"),
    "registration.endpoint-place": elsewhere,
    "registration.endpoint-length": lambda: saying(endpoint=lambda i: "/." * 50 + i.endpoint),
    "registration.socket-private": public,
    "registration.info-in-time": slow_info,
    "registration.again": once,
    "registration.refused": offended,
    "registration.connections": for_few,
    "registration.service-first": late,
    "registration.unknown-method": yes_to_all,
    "registration.sockets-removed": untidy,
    "registration.ends": ending_badly,
    "registration.own-sockets": sharing_sockets,
}
