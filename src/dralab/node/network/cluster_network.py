"""The networks of a cluster's nodes and pods on this machine, from `start` to `close`.

A network namespace each for the router, the nodes and the pods: only one interface and one route
are the machine's own. All is held by open files of this process. If it is killed, and with it the
containers, the kernel takes everything away.
"""

import contextlib
import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from ipaddress import IPv4Network
from typing import Final

from dralab.node.network import topology
from dralab.node.network.addresses import ClusterRange, PodAddresses, RangeError
from dralab.node.network.host_ports import HostPort, host_ports_of, needs_loopback, rules
from dralab.node.network.namespaces import PodNamespaces, problem
from dralab.node.network.sandbox import Sandbox, SandboxError
from dralab.node.network.sysctls import sysctls_of
from dralab.objects.metadata import uid_of
from dralab.values.json_types import JsonDict

FORWARD: Final = "net.ipv4.ip_forward"
LOOPBACK_PORTS: Final = "net.ipv4.conf.all.route_localnet"
NEEDED: Final = "run as root, with CAP_NET_ADMIN and CAP_SYS_ADMIN"
ENOUGH: Final = 10  # seconds for a command that takes milliseconds


class NetworkUnavailable(Exception):  # noqa: N818 - a fact about this machine
    """Pods cannot have networks on this machine; `str` is one line that says what to do."""


class ClusterNetwork:
    """The machine's end, the router, and the networks of the nodes by their names."""

    def __init__(self, cluster: ClusterRange) -> None:
        self.cluster = cluster
        self.nodes: dict[str, NodeNetwork] = {}
        self.router: PodNamespaces | None = None
        self._claim: socket.socket | None = None
        # The kernel takes 30 ms to delete an interface: nothing waits for that.
        self._cleaning = ThreadPoolExecutor(1, thread_name_prefix="pod-network")

    @property
    def machine(self) -> str:
        """The address at which pods reach this machine."""
        return str(self.cluster.machine)

    @property
    def interface(self) -> str:
        """The machine's interface in the network."""
        return topology.machine_interface(self.cluster)

    def start(self) -> None:
        """Join this machine to a router. NetworkUnavailable."""
        if shutil.which("ip") is None:
            raise NetworkUnavailable("--cluster-cidr needs the program `ip` (iproute2)")
        if why := problem():
            raise NetworkUnavailable(
                f"this machine lets you make no network namespaces ({why}): {NEEDED}"
            )
        self._claim = _claimed(self.interface, self.cluster)
        try:
            self._check_free()
            self.router = PodNamespaces.new()
            run_ip(topology.machine_lines(self.cluster, self.router.path))
            run_ip(topology.router_lines(self.cluster), self.router)
            self.router.set_sysctl(FORWARD, "1")
        except (SandboxError, OSError) as error:
            self.close()
            hint = f": {NEEDED}" if "not permitted" in str(error) else ""
            text = f"cannot set up {self.cluster.network}: {error}{hint}"
            raise NetworkUnavailable(text) from error
        except BaseException:
            self.close()
            raise

    def add_node(self, name: str) -> "NodeNetwork":
        """Return the network of a node, created if missing. RangeError, SandboxError."""
        if name not in self.nodes:
            self.nodes[name] = NodeNetwork(self, len(self.nodes))
        return self.nodes[name]

    def close(self) -> None:
        """Remove everything."""
        for each in self.nodes.values():
            each.close()
        # What is left goes with the nodes' namespaces.
        self._cleaning.shutdown(cancel_futures=True)
        self.nodes.clear()
        if self.router is not None:
            with contextlib.suppress(SandboxError):
                run_ip([f"link delete {self.interface}"])
            self.router.close()
            self.router = None
        if self._claim is not None:
            self._claim.close()
            self._claim = None

    def clean(self, work: Callable[[], None]) -> None:
        """Run deferred cleanups, after all earlier requests."""
        self._cleaning.submit(work)

    def _check_free(self) -> None:
        """Remove what a killed run left; refuse a range that this machine uses."""
        own = self.interface
        with contextlib.suppress(SandboxError):  # it is not there
            run_ip([f"link delete {own}"])
        for route in _routes():
            with contextlib.suppress(ValueError):
                found = IPv4Network(route.get("dst", ""))
                if found.overlaps(self.cluster.network) and route.get("dev") != own:
                    raise NetworkUnavailable(
                        f"--cluster-cidr {self.cluster.network} overlaps with this machine's route "
                        f"to {found} (dev {route.get('dev')}): choose another network"
                    )


class NodeNetwork:
    """The network of a node and its pods."""

    def __init__(self, network: ClusterNetwork, number: int) -> None:
        self.network, self.number = network, number
        self.address = network.cluster.node(number)
        self.addresses: PodAddresses | None = None
        self._pods: dict[str, Sandbox] = {}
        self._interfaces: dict[str, str] = {}
        self._ports: dict[str, list[HostPort]] = {}
        self._count = 0
        if network.router is None:
            raise RuntimeError("the network of the cluster has not started")
        self.router = network.router
        try:
            self.namespaces = PodNamespaces.new()
            inside = self.namespaces.path
            run_ip(topology.node_in_router_lines(number, self.address, inside), self.router)
            run_ip(topology.node_lines(network.cluster, self.address), self.namespaces)
            self.namespaces.set_sysctl(FORWARD, "1")
        except OSError as error:
            raise SandboxError(str(error)) from error

    @property
    def ip(self) -> str:
        """The node's address."""
        return str(self.address)

    def pod_cidr(self, node: JsonDict, others: Sequence[JsonDict]) -> str:
        """Return the range of the node's pods: the one that it has, or a new one. RangeError."""
        held: str = node["spec"].get("podCIDR") or ""
        if held:
            self.network.cluster.check(held)
            return held
        return self.network.cluster.pod_cidr(
            [cidr for each in others if (cidr := each["spec"].get("podCIDR")) and ":" not in cidr]
        )

    def route(self, pod_cidr: str) -> None:
        """Route to the node's pods. SandboxError."""
        if self.addresses is not None:
            return
        addresses = PodAddresses(pod_cidr)
        lines = topology.pods_in_router_lines(self.number, self.address, pod_cidr)
        run_ip(lines, self.router)
        run_ip(topology.pods_lines(addresses.gateway, pod_cidr), self.namespaces)
        self.addresses = addresses

    def add_pod(self, pod: JsonDict) -> Sandbox:
        """Return a pod's sandbox, created if missing. SandboxError."""
        uid = uid_of(pod)
        if uid not in self._pods:
            try:
                self._pods[uid] = self._new(pod)
            except (RangeError, OSError) as error:
                raise SandboxError(str(error)) from error
        return self._pods[uid]

    def forget_pod(self, uid: str) -> None:
        """Remove the sandbox of a finished pod."""
        sandbox = self._pods.pop(uid, None)
        if sandbox is None or sandbox.namespaces is None:
            return
        if self._ports.pop(uid, None):
            with contextlib.suppress(SandboxError):
                self._apply_ports()
        if not sandbox.has_own_network:
            sandbox.namespaces.close_ipc()
            return
        self._take_back(sandbox, self._interfaces.pop(uid))

    def close(self) -> None:
        """Remove the node and its pods."""
        for uid in list(self._pods):
            self.forget_pod(uid)
        self.namespaces.close()

    def _new(self, pod: JsonDict) -> Sandbox:
        if pod["spec"].get("hostNetwork"):
            shared = PodNamespaces(self.namespaces.net)
            own = shared if pod["spec"].get("hostIPC") else shared.with_ipc()
            sandbox = Sandbox(self.ip, own, self.namespaces)
            try:
                self._set_sysctls(pod, own)
            except OSError:
                own.close_ipc()
                raise
            return sandbox
        if self.addresses is None:
            raise SandboxError("the node has no spec.podCIDR yet")
        ip, self._count = self.addresses.take(), self._count + 1
        interface = f"veth{self._count:x}"
        net = PodNamespaces.new()
        sandbox = Sandbox(ip, net, self.namespaces)
        try:
            if not pod["spec"].get("hostIPC"):
                net = net.with_ipc()
                sandbox = Sandbox(ip, net, self.namespaces)
            run_ip(
                topology.pod_in_node_lines(interface, ip, self.address, net.path), self.namespaces
            )
            run_ip(topology.pod_lines(ip, self.addresses.gateway), net)
            self._set_sysctls(pod, net)
            if ports := host_ports_of(pod, ip):
                self._ports[uid_of(pod)] = ports
                self._apply_ports()
        except BaseException:
            self._ports.pop(uid_of(pod), None)
            self._take_back(sandbox, interface)
            raise
        self._interfaces[uid_of(pod)] = interface
        return sandbox

    def _take_back(self, sandbox: Sandbox, interface: str) -> None:
        if sandbox.namespaces is not None:
            sandbox.namespaces.close()

        def work() -> None:
            # The kernel does it too, unless a process that has escaped holds the other end.
            with contextlib.suppress(SandboxError):
                run_ip([f"link delete {interface}"], self.namespaces)
            if self.addresses is not None:
                self.addresses.give_back(sandbox.ip)

        self.network.clean(work)

    def _set_sysctls(self, pod: JsonDict, namespaces: PodNamespaces) -> None:
        for name, value in sysctls_of(pod).items():
            namespaces.set_sysctl(name, value)

    def _apply_ports(self) -> None:
        ports = [each for listed in self._ports.values() for each in listed]
        if needs_loopback(ports):
            self.namespaces.set_sysctl(LOOPBACK_PORTS, "1")
        _run(["nft", "-f", "-"], rules(ports), self.namespaces)


def run_ip(lines: Sequence[str], namespaces: PodNamespaces | None = None) -> None:
    """Run lines of `ip`, on this machine or in its namespaces. SandboxError."""
    _run(["ip", "-batch", "-"], "\n".join([*lines, ""]), namespaces)


def _run(words: Sequence[str], text: str, namespaces: PodNamespaces | None = None) -> str:
    inside = contextlib.nullcontext() if namespaces is None else namespaces.entered()
    try:
        with inside:
            done = subprocess.run(  # noqa: S603 - our own words, with addresses that were parsed
                words, input=text, capture_output=True, text=True, check=False, timeout=ENOUGH
            )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise SandboxError(f"cannot run {words[0]}: {error}") from error
    if done.returncode != 0:
        raise SandboxError(f"{words[0]}: {' '.join(done.stderr.split())}")
    return done.stdout


def _routes() -> list[dict[str, str]]:
    found: list[dict[str, str]] = json.loads(_run(["ip", "-json", "-4", "route"], "") or "[]")
    return found


def _claimed(name: str, cluster: ClusterRange) -> socket.socket:
    """Claim the network exclusively for this process. NetworkUnavailable."""
    found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        found.bind(f"\0dralab-network-{name}")
    except OSError as error:
        found.close()
        raise NetworkUnavailable(
            f"another cluster on this machine uses {cluster.network}: choose another --cluster-cidr"
        ) from error
    return found
