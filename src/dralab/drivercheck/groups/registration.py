"""Checks of registration: the socket that a kubelet finds, and what a driver says of itself."""

import os
import re
import stat
from pathlib import Path
from typing import Final

from dralab.contracts import wire
from dralab.drivercheck.bench import Bench
from dralab.drivercheck.catalog import (
    KEP,
    KUBELET,
    LIBRARY,
    MUST,
    PLUGIN_MANAGER,
    REGISTRATION_PROTO,
    SHOULD,
    Catalog,
)
from dralab.drivercheck.rules import CheckNeed, NotApplicable, fail, require
from dralab.drivercheck.sockets import DriverCallError, sockets_in

catalog: Final = Catalog("registration")
WATCHER: Final = "kubernetes/pkg/kubelet/pluginmanager/pluginwatcher/plugin_watcher.go"
EXECUTOR: Final = "kubernetes/pkg/kubelet/pluginmanager/operationexecutor/operation_generator.go"
SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
LONGEST_NAME: Final = 63


@catalog.check(MUST, f"{WATCHER}: paths that begin with a dot are ignored")
def socket_name(bench: Bench) -> None:
    """The name of the registration socket, and of each directory above it, has no leading dot."""
    path = bench.plugin.socket.relative_to(bench.places.registry)
    require(
        not any(part.startswith(".") for part in path.parts),
        f"the socket is {path}: a kubelet ignores names that begin with a dot",
    )


@catalog.check(MUST, f"{REGISTRATION_PROTO}: PluginInfo.type", id="registration.type")
def plugin_type(bench: Bench) -> None:
    """GetInfo answers the type DRAPlugin."""
    found = bench.plugin.type
    require(found == wire.PLUGIN_TYPE, f"type is {found!r}, not {wire.PLUGIN_TYPE!r}")


@catalog.check(
    MUST,
    f"{KEP}: ResourceSlice.spec.driver; kubernetes/pkg/apis/resource/validation: driver names",
    id="registration.name",
)
def plugin_name(bench: Bench) -> None:
    """The driver's name is a DNS subdomain in lower case of at most 63 characters."""
    name = bench.plugin.name
    require(SUBDOMAIN.fullmatch(name), f"name is {name!r}: not a DNS subdomain in lower case")
    require(len(name) <= LONGEST_NAME, f"name has {len(name)} characters: at most {LONGEST_NAME}")


@catalog.check(MUST, f"{KUBELET}: a claim's result is sent to the plugin of its name")
def name_of_slices(bench: Bench) -> None:
    """The name at registration is the driver's name in its ResourceSlices."""
    name = bench.plugin.name
    if not SUBDOMAIN.fullmatch(name):
        raise NotApplicable("the name is not one that a slice may have")
    told = sorted({one["spec"]["driver"] for one in bench.slices()})
    require(
        told == [name],
        f"name is {name!r}, and the slices say {', '.join(map(repr, told))}: a kubelet would not "
        "find the plugin of an allocated device",
    )


@catalog.check(MUST, f"{PLUGIN_MANAGER}: ValidatePlugin")
def versions(bench: Bench) -> None:
    """supported_versions names a version of the plugin service that kubelets know."""
    offered = bench.plugin.versions
    require(offered, "supported_versions is empty")
    require(
        bench.plugin.plugin_versions,
        f"supported_versions is {', '.join(offered)}: none of "
        f"{', '.join(wire.PLUGIN_SERVICES)} is in it",
    )


@catalog.check(MUST, f"{PLUGIN_MANAGER}: the kubelet calls the first version that it knows")
def versions_served(bench: Bench) -> None:
    """Each version of the plugin service that is offered is served."""
    for name in bench.plugin.plugin_versions:
        try:
            bench.connection.prepare(name, [])
        except DriverCallError as error:
            require(
                error.code != "UNIMPLEMENTED",
                f"{name} is offered, and {wire.PLUGIN_SERVICES[name]} is not served: {error}",
            )


@catalog.check(SHOULD, f"{PLUGIN_MANAGER}: the first known version wins; v1beta1 has no share_id")
def newest_first(bench: Bench) -> None:
    """v1.DRAPlugin is offered, before v1beta1.DRAPlugin."""
    known = bench.plugin.plugin_versions
    require(
        not known or known[0] == "v1.DRAPlugin",
        f"supported_versions is {', '.join(bench.plugin.versions)}: a kubelet takes {known[:1]}",
    )


@catalog.check(SHOULD, f"{REGISTRATION_PROTO}: PluginInfo.supported_versions")
def versions_once(bench: Bench) -> None:
    """supported_versions names nothing twice."""
    offered = bench.plugin.versions
    twice = sorted({name for name in offered if offered.count(name) > 1})
    require(not twice, f"supported_versions names {', '.join(twice)} twice")


@catalog.check(
    MUST,
    f"{REGISTRATION_PROTO}: PluginInfo.endpoint; {PLUGIN_MANAGER}: it is dialled as unix://<endpoint>",
)
def endpoint_absolute(bench: Bench) -> None:
    """The endpoint is empty or an absolute path, without a scheme."""
    endpoint = bench.plugin.endpoint
    require(not endpoint or endpoint.startswith("/"), f"endpoint is {endpoint!r}: not absolute")


@catalog.check(
    SHOULD, f"{KEP}: the plugin directory; a node's administrator protects it as the kubelet's own"
)
def endpoint_place(bench: Bench) -> None:
    """The endpoint is in a directory of the driver's own below the kubelet's plugins."""
    endpoint = os.path.realpath(bench.plugin.address)
    place = os.path.realpath(bench.places.plugins)
    parts = Path(os.path.relpath(endpoint, place)).parts
    require(
        ".." not in parts and len(parts) >= 2,
        f"endpoint is {endpoint}, not {place}/{bench.plugin.name}/…",
    )


@catalog.check(MUST, "unix(7): sun_path has 108 bytes with the final zero")
def endpoint_length(bench: Bench) -> None:
    """The endpoint is a path of at most 107 bytes."""
    size = len(bench.plugin.endpoint.encode())
    require(
        size <= wire.LONGEST_PATH,
        f"endpoint has {size} bytes: a Unix socket path has at most {wire.LONGEST_PATH}",
    )


@catalog.check(
    SHOULD,
    f"{KEP}: only the kubelet calls the driver; unix(7): connecting needs the write permission",
)
def socket_private(bench: Bench) -> None:
    """Users other than the owner may not connect to the sockets."""
    for path in {str(bench.plugin.socket), bench.plugin.address}:
        mode = stat.S_IMODE(os.stat(path).st_mode)  # noqa: PTH116 - a path of the driver's
        require(not mode & stat.S_IWOTH, f"{path} has the mode {mode:o}: all users may connect")


@catalog.check(MUST, f"{EXECUTOR}: GetInfo has a time-out of 1 s")
def info_in_time(bench: Bench) -> None:
    """GetInfo answers within a second, the third time too."""
    connection = bench.connect(bench.plugin.socket)
    for _ in range(3):
        try:
            connection.info()
        except DriverCallError as error:
            fail(f"GetInfo failed within {bench.limits.info:g} s: {error}")


@catalog.check(MUST, "kubernetes/pkg/kubelet/pluginmanager/reconciler/reconciler.go")
def again(bench: Bench) -> None:
    """A driver can be registered again, and says the same: a kubelet that restarts asks again."""
    connection = bench.connect(bench.plugin.socket)
    found = connection.info(bench.limits.ready)
    require(found == bench.plugin, f"GetInfo answered {bench.plugin}, and now {found}")
    try:
        connection.notify(registered=True)
    except DriverCallError as error:
        fail(f"the second NotifyRegistrationStatus(true) failed: {error}")


@catalog.check(
    SHOULD,
    f"{EXECUTOR}: a refused registration is tried again with back-off",
    needs=[CheckNeed.RESTART],
    fresh=True,
)
def refused(bench: Bench) -> None:
    """After NotifyRegistrationStatus(false) a driver goes on, so that a later try can succeed."""
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


@catalog.check(MUST, f"{PLUGIN_MANAGER}: one gRPC connection per registered endpoint")
def connections(bench: Bench) -> None:
    """Several connections are served at once: each registration opens one of its own."""
    opened = [bench.connect(bench.plugin.address) for _ in range(4)]
    for number, connection in enumerate(opened * 2, 1):
        try:
            bench.ping(connection)
        except DriverCallError as error:
            fail(f"call {number} over one of 4 connections failed: {error}")


@catalog.check(
    SHOULD,
    f"{LIBRARY}: Start; a kubelet connects as soon as it has seen the registration socket",
    needs=[CheckNeed.RESTART],
    fresh=True,
)
def service_first(bench: Bench) -> None:
    """The service's socket is served before the registration socket appears."""
    bench.launch()
    path = bench.find_socket()
    found = bench.connect(path).info(bench.limits.ready)
    try:
        bench.info = found
        bench.ping(bench.connection)
    except DriverCallError as error:
        fail(f"{found.address} is not served yet: {error}")


@catalog.check(
    MUST, "gRPC: status codes; newer kubelets ask for services that older drivers don't have"
)
def unknown_method(bench: Bench) -> None:
    """A method that the driver does not know is answered with UNIMPLEMENTED."""
    path = "/k8s.io.kubelet.pkg.apis.dra.v99.DRAPlugin/NodePrepareResources"
    code = bench.connection.raw(path, b"", bench.limits.notify)
    require(code == "UNIMPLEMENTED", f"{path} was answered with {code}, not UNIMPLEMENTED")


@catalog.check(
    SHOULD,
    f"{WATCHER}: a socket that is removed deregisters its plugin",
    needs=[CheckNeed.RESTART],
    fresh=True,
)
def sockets_removed(bench: Bench) -> None:
    """A driver that is stopped (SIGTERM) removes its sockets: the kubelet deregisters it at
    once.
    """
    bench.start(devices=False)
    bench.stop()
    left = [*sockets_in(bench.places.registry), *sockets_in(bench.places.plugins)]
    require(not left, f"sockets are left: {', '.join(map(str, left))}")


@catalog.check(
    SHOULD,
    "Kubernetes: terminationGracePeriodSeconds is 30 by default, then the process is killed",
    needs=[CheckNeed.RESTART],
    fresh=True,
)
def ends(bench: Bench) -> None:
    """A driver that gets SIGTERM ends within 30 s with exit code 0."""
    bench.start()
    code = bench.stop()
    require(code is not None, f"it still runs {bench.limits.stop:g} s after SIGTERM")
    require(code == 0, f"its exit code is {code}, not 0")


@catalog.check(
    MUST,
    f"{LIBRARY}: RollingUpdate; {KEP}: seamless upgrades",
    needs=[CheckNeed.INSTANCES],
    fresh=True,
)
def own_sockets(bench: Bench) -> None:
    """Two instances with different pod UIDs have sockets of their own, and both are served."""
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
