"""Checks of registration: the socket that a kubelet finds, and what a driver says of itself."""

import os
import re
import stat
from pathlib import Path
from typing import Final

from dralab.contracts import wire
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import MUST, SHOULD, Catalog
from dralab.drivercheck.rules import CheckNeed, NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError, sockets_in
from dralab.drivercheck.sources import KEP, KUBELET, LIBRARY, PLUGIN_MANAGER, REGISTRATION_PROTO

catalog: Final = Catalog()
WATCHER: Final = "kubernetes/pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go"
EXECUTOR: Final = "kubernetes/pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go"
SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_NAME: Final = 63


@catalog.check(
    "registration.socket-name", MUST,
    "The name of the registration socket, and of each directory above it, has no leading dot.",
    f"{WATCHER}: paths that begin with a dot are ignored",
)  # fmt: skip
def socket_name(bench: Bench) -> None:
    path = bench.plugin.socket.relative_to(bench.places.registry)
    require(
        not any(part.startswith(".") for part in path.parts),
        f"the socket is {path}: a kubelet ignores names that begin with a dot",
    )


@catalog.check(
    "registration.type",
    MUST,
    "GetInfo answers the type DRAPlugin.",
    f"{REGISTRATION_PROTO}: PluginInfo.type",
)
def plugin_type(bench: Bench) -> None:
    found = bench.plugin.type
    require(found == wire.PLUGIN_TYPE, f"type is {found!r}, not {wire.PLUGIN_TYPE!r}")


@catalog.check(
    "registration.name", MUST,
    "The driver's name is a DNS subdomain in lower case of at most 63 characters.",
    f"{KEP}: ResourceSlice.spec.driver; kubernetes/pkg/apis/resource/validation: driver names",
)  # fmt: skip
def plugin_name(bench: Bench) -> None:
    name = bench.plugin.name
    require(SUBDOMAIN.fullmatch(name), f"name is {name!r}: not a DNS subdomain in lower case")
    require(len(name) <= LONGEST_NAME, f"name has {len(name)} characters: at most {LONGEST_NAME}")


@catalog.check(
    "registration.name-of-slices", MUST,
    "The name at registration is the driver's name in its ResourceSlices.",
    f"{KUBELET}: a claim's result is sent to the plugin of its name",
)  # fmt: skip
def name_of_slices(bench: Bench) -> None:
    name = bench.plugin.name
    if not SUBDOMAIN.fullmatch(name):
        raise NotApplicable("the name is not one that a slice may have")
    told = sorted({one["spec"]["driver"] for one in bench.slices()})
    require(
        told == [name],
        f"name is {name!r}, and the slices say {', '.join(map(repr, told))}: a kubelet would not "
        "find the plugin of an allocated device",
    )


@catalog.check(
    "registration.versions", MUST,
    "supported_versions names a version of the plugin service that kubelets know.",
    f"{PLUGIN_MANAGER}: ValidatePlugin",
)  # fmt: skip
def versions(bench: Bench) -> None:
    offered = bench.plugin.versions
    require(offered, "supported_versions is empty")
    require(
        bench.plugin.plugin_versions,
        f"supported_versions is {', '.join(offered)}: none of "
        f"{', '.join(wire.PLUGIN_SERVICES)} is in it",
    )


@catalog.check(
    "registration.versions-served", MUST,
    "Each version of the plugin service that is offered is served.",
    f"{PLUGIN_MANAGER}: the kubelet calls the first version that it knows",
)  # fmt: skip
def versions_served(bench: Bench) -> None:
    for name in bench.plugin.plugin_versions:
        try:
            bench.connection.prepare(name, [])
        except DriverCallError as error:
            require(
                error.code != "UNIMPLEMENTED",
                f"{name} is offered, and {wire.PLUGIN_SERVICES[name]} is not served: {error}",
            )


@catalog.check(
    "registration.newest-first", SHOULD,
    "v1.DRAPlugin is offered, before v1beta1.DRAPlugin.",
    f"{PLUGIN_MANAGER}: the first known version wins; v1beta1 has no share_id",
)  # fmt: skip
def newest_first(bench: Bench) -> None:
    known = bench.plugin.plugin_versions
    require(
        not known or known[0] == "v1.DRAPlugin",
        f"supported_versions is {', '.join(bench.plugin.versions)}: a kubelet takes {known[:1]}",
    )


@catalog.check(
    "registration.versions-once", SHOULD,
    "supported_versions names nothing twice.",
    f"{REGISTRATION_PROTO}: PluginInfo.supported_versions",
)  # fmt: skip
def versions_once(bench: Bench) -> None:
    offered = bench.plugin.versions
    twice = sorted({name for name in offered if offered.count(name) > 1})
    require(not twice, f"supported_versions names {', '.join(twice)} twice")


@catalog.check(
    "registration.endpoint-absolute", MUST,
    "The endpoint is empty or an absolute path, without a scheme.",
    f"{REGISTRATION_PROTO}: PluginInfo.endpoint; {PLUGIN_MANAGER}: it is dialled as unix://<endpoint>",
)  # fmt: skip
def endpoint_absolute(bench: Bench) -> None:
    endpoint = bench.plugin.endpoint
    require(not endpoint or endpoint.startswith("/"), f"endpoint is {endpoint!r}: not absolute")


@catalog.check(
    "registration.endpoint-place", SHOULD,
    "The endpoint is in a directory of the driver's own below the kubelet's plugins.",
    f"{KEP}: the plugin directory; a node's administrator protects it as the kubelet's own",
)  # fmt: skip
def endpoint_place(bench: Bench) -> None:
    endpoint = os.path.realpath(bench.plugin.address)
    place = os.path.realpath(bench.places.plugins)
    parts = Path(os.path.relpath(endpoint, place)).parts
    require(
        ".." not in parts and len(parts) >= 2,
        f"endpoint is {endpoint}, not {place}/{bench.plugin.name}/…",
    )


@catalog.check(
    "registration.endpoint-length", MUST,
    "The endpoint is a path of at most 107 bytes.",
    "unix(7): sun_path has 108 bytes with the final zero",
)  # fmt: skip
def endpoint_length(bench: Bench) -> None:
    size = len(bench.plugin.endpoint.encode())
    require(
        size <= wire.LONGEST_PATH,
        f"endpoint has {size} bytes: a Unix socket path has at most {wire.LONGEST_PATH}",
    )


@catalog.check(
    "registration.socket-private", SHOULD,
    "Users other than the owner may not connect to the sockets.",
    f"{KEP}: only the kubelet calls the driver; unix(7): connecting needs the write permission",
)  # fmt: skip
def socket_private(bench: Bench) -> None:
    for path in {str(bench.plugin.socket), bench.plugin.address}:
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 - a path of the driver's
        require(not mode & stat.S_IWOTH, f"{path} has the mode {mode:o}: all users may connect")


@catalog.check(
    "registration.info-in-time", MUST,
    "GetInfo answers within a second, the third time too.",
    f"{EXECUTOR}: GetInfo has a time-out of 1 s",
)  # fmt: skip
def info_in_time(bench: Bench) -> None:
    connection = bench.connect(bench.plugin.socket)
    for _ in range(3):
        try:
            connection.info()
        except DriverCallError as error:
            fail(f"GetInfo failed within {bench.limits.info:g} s: {error}")


@catalog.check(
    "registration.again", MUST,
    "A driver can be registered again, and says the same: a kubelet that restarts asks again.",
    "kubernetes/pkg/kubelet/pluginmanager/reconciler/reconciler.go",
)  # fmt: skip
def again(bench: Bench) -> None:
    connection = bench.connect(bench.plugin.socket)
    found = connection.info(bench.limits.ready)
    require(found == bench.plugin, f"GetInfo answered {bench.plugin}, and now {found}")
    try:
        connection.notify(registered=True)
    except DriverCallError as error:
        fail(f"the second NotifyRegistrationStatus(true) failed: {error}")


@catalog.check(
    "registration.refused", SHOULD,
    "After NotifyRegistrationStatus(false) a driver goes on, so that a later try can succeed.",
    f"{EXECUTOR}: a refused registration is tried again with back-off",
    needs=[CheckNeed.RESTART], fresh=True,
)  # fmt: skip
def refused(bench: Bench) -> None:
    bench.launch()
    path = bench.find_socket()
    connection = bench.connect(path)
    connection.info(bench.limits.ready)
    try:
        connection.notify(registered=False, error="the check refuses the first registration")
    except DriverCallError as error:
        # The Go library answers with an error of its own.
        require(error.code != "DEADLINE_EXCEEDED", f"no answer to a refusal: {error}")
    bench.wait(min(0.3, bench.limits.quiet))
    bench.register()


@catalog.check(
    "registration.connections", MUST,
    "Several connections are served at once: each registration opens one of its own.",
    f"{PLUGIN_MANAGER}: one gRPC connection per registered endpoint",
)  # fmt: skip
def connections(bench: Bench) -> None:
    opened = [bench.connect(bench.plugin.address) for _ in range(4)]
    for number, connection in enumerate(opened * 2, 1):
        try:
            bench.ping(connection)
        except DriverCallError as error:
            fail(f"call {number} over one of 4 connections failed: {error}")


@catalog.check(
    "registration.service-first", SHOULD,
    "The service's socket is served before the registration socket appears.",
    f"{LIBRARY}: Start; a kubelet connects as soon as it has seen the registration socket",
    needs=[CheckNeed.RESTART], fresh=True,
)  # fmt: skip
def service_first(bench: Bench) -> None:
    bench.launch()
    path = bench.find_socket()
    found = bench.connect(path).info(bench.limits.ready)
    try:
        bench.info = found
        bench.ping(bench.connection)
    except DriverCallError as error:
        fail(f"{found.address} is not served yet: {error}")


@catalog.check(
    "registration.unknown-method", MUST,
    "A method that the driver does not know is answered with UNIMPLEMENTED.",
    "gRPC: status codes; newer kubelets ask for services that older drivers don't have",
)  # fmt: skip
def unknown_method(bench: Bench) -> None:
    path = "/k8s.io.kubelet.pkg.apis.dra.v99.DRAPlugin/NodePrepareResources"
    code = bench.connection.raw(path, b"", bench.limits.notify)
    require(code == "UNIMPLEMENTED", f"{path} was answered with {code}, not UNIMPLEMENTED")


@catalog.check(
    "registration.sockets-removed", SHOULD,
    "A driver that is stopped (SIGTERM) removes its sockets: the kubelet deregisters it at once.",
    f"{WATCHER}: a socket that is removed deregisters its plugin",
    needs=[CheckNeed.RESTART], fresh=True,
)  # fmt: skip
def sockets_removed(bench: Bench) -> None:
    bench.start(devices=False)
    bench.stop()
    left = [*sockets_in(bench.places.registry), *sockets_in(bench.places.plugins)]
    require(not left, f"sockets are left: {', '.join(map(str, left))}")


@catalog.check(
    "registration.ends", SHOULD,
    "A driver that is told to stop (SIGTERM) ends within 30 s with exit code 0.",
    "Kubernetes: terminationGracePeriodSeconds is 30 by default, then the process is killed",
    needs=[CheckNeed.RESTART], fresh=True,
)  # fmt: skip
def ends(bench: Bench) -> None:
    bench.start()
    code = bench.stop()
    require(code is not None, f"it still runs {bench.limits.stop:g} s after SIGTERM")
    require(code == 0, f"its exit code is {code}, not 0")


@catalog.check(
    "registration.own-sockets", MUST,
    "Two instances with different pod UIDs have sockets of their own, and both are served.",
    f"{LIBRARY}: RollingUpdate; {KEP}: seamless upgrades",
    needs=[CheckNeed.INSTANCES], fresh=True,
)  # fmt: skip
def own_sockets(bench: Bench) -> None:
    bench.start("11111111-0000-4000-8000-000000000001", devices=False)
    first = bench.plugin
    bench.launch("11111111-0000-4000-8000-000000000002")
    second = bench.register(known=[first.socket])
    require(
        first.address != second.address,
        f"both instances say that their endpoint is {first.address}",
    )
    for found in (first, second):
        bench.ping(bench.connect(found.address))
