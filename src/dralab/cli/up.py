"""`dralab up`: serve a cluster on this machine."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from dralab.cli._autoscaler import AutoscalerFlags
from dralab.cli._components import (
    CLUSTER_CIDR,
    CLUSTER_DNS,
    IMAGE_MAP,
    NAMESPACES,
    RUNTIME,
    check_namespaces,
)
from dralab.cli._help import EverydayCommand
from dralab.cli._options import FILE, FOLDER, opt, options, options_of
from dralab.cli._pod_network import check_room, cluster_network, pod_network
from dralab.cli.apiserver import note, serve
from dralab.cli.errors import refusing

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from ipaddress import IPv4Network

    from dralab.cluster import Cluster, Component
    from dralab.components.nodes import NodeOptions


EVERYDAY = (
    "nodes", "driver", "fleet", "autoscaler", "snapshot", "without", "runtime",
    "kubernetes-version", "data", "listen", "kubeconfig", "tls",
)  # fmt: skip


@click.command(cls=EverydayCommand, everyday=EVERYDAY)
@options_of(serve)
@options
def up(
    *,
    snapshot: Path | None = opt(
        "Serve the cluster of a file of `dralab snapshot`, by default in memory. --without "
        "scheduler,controllers leaves it as it was.",
        FILE,
    ),
    empty: bool = opt("Do not load the example into an empty cluster."),
    without: str = opt("Leave out: scheduler, controllers, nodes.", metavar="PART[,PART]"),
    api: str = opt(
        "Device API generations to serve: v1, k8srm, evolution, classic.",
        metavar="API[,API]",
        default="v1",
    ),
    nodes: int | None = opt("Run this many nodes.", least=1, most=5_000),
    named: tuple[str, ...] = opt(
        "Run a node with this name. May be repeated.", flags="--node", metavar="NAME"
    ),
    fleet: str = opt("Run nodes of a shape of `dralab generate`.", metavar="SHAPE"),
    drivers: tuple[str, ...] = opt(
        "Run this driver on every node; repeatable.",
        ["fake", "gpu", "nic", "cpu"],
        flags="--driver",
    ),
    scaling: AutoscalerFlags,
    runtime: str = RUNTIME,
    images: tuple[str, ...] = IMAGE_MAP,
    namespaces: bool = NAMESPACES,
    cluster_cidr: str = CLUSTER_CIDR,
    cluster_dns: str = CLUSTER_DNS,
    root: Path | None = opt(
        "The parent of the nodes' kubelet directories, where drivers of other processes register. "
        "Objects are stored in its directory .cluster unless --data is given.",
        FOLDER,
    ),
    load_balancers: str = opt(
        "Give Services of type LoadBalancer addresses of this network (IPv4). Nothing listens "
        "there.  [default: they wait]",
        metavar="CIDR",
    ),
    system_pods: bool = opt(
        "Have simulated pods in kube-system as after kubeadm: coredns, kube-proxy, etcd and the "
        "control plane."
    ),
    no_ui: bool = opt("Do not serve the page at /ui."),
    **options: Any,
) -> None:
    """Serve a cluster until Ctrl-C or SIGTERM.

    Prints `ready: URL` when it accepts clients. An empty cluster gets an example, whose pods get
    devices but do not run. With --nodes, --fleet or --driver it runs nodes instead.

    Example: `dralab up`, and in another terminal `kubectl --kubeconfig … get pods -A`
    """
    from dralab.components.control_plane import ControlPlane
    from dralab.components.nodes import PROCESS, NodeOptions, Nodes

    if named and (nodes or fleet):
        raise click.UsageError("use one of --node, --nodes and --fleet")
    if images and runtime != PROCESS:
        raise click.BadParameter("--image-map needs --runtime process", param_hint="--image-map")
    if runtime == PROCESS and not options["tls"]:
        raise click.UsageError(
            "--runtime process lets clients run commands as you: it needs TLS and a token. "
            "Omit --plain"
        )
    commands = _commands(images) if images else {}
    network, dns = cluster_network(
        cluster_cidr,
        cluster_dns,
        options["service_cluster_ip_range"],
        namespaces=namespaces and runtime == PROCESS,
    )
    wanted = NodeOptions(
        nodes=nodes or (1 if root is not None and not (fleet or drivers or named) else None),
        named=named,
        fleet=fleet,
        drivers=drivers,
        runtime=runtime,
        images=commands,
        root=root,
        namespaces=namespaces,
        network=network,
        dns=dns,
    )
    if namespaces:
        _check_namespaces(runtime, root)
    check_room(network, wanted)
    if runtime == PROCESS:
        note("commands of pods run as processes on this machine, with your rights and no isolation")
    if fleet:
        _check_fleet(fleet)
    if system_pods:
        _check_system_pods(wanted)
    left_out = [name.strip() for name in without.split(",") if name.strip()]
    profiles = _profiles(api)
    with refusing(ValueError, option="--without"):
        running = ControlPlane(
            without=left_out,
            load_balancers=_network(load_balancers) if load_balancers else None,
        )
    _tell_without_today(profiles, drivers)
    components: list[Component] = [running]
    scaling.check(wanted, profiles, left_out)
    if scaling and not wanted:
        wanted = replace(wanted, nodes=0)
    if (wanted or scaling) and "nodes" not in left_out:
        run = Nodes(replace(wanted, classic="classic" in profiles))
        components += [run, *scaling.components(run)]

    if options.get("data") is None:
        options["data"] = data_of(snapshot, root)

    bare = not (empty or wanted or scaling or snapshot is not None)

    def begin(cluster: "Cluster") -> None:
        if bare and "v1" in profiles:
            _load_example(cluster)
        if system_pods:
            from dralab.components import system_pods as pods
            from dralab.components.nodes import first_name

            pods.load(cluster.client, first_name(wanted))

    with pod_network(network) as (pods_host, pods_device):
        serve(
            **options,
            profiles=profiles,
            components=components,
            begin=begin,
            snapshot=snapshot,
            page=not no_ui,
            pods_host=pods_host,
            pods_device=pods_device,
            pods_network=network.cluster.network if network is not None else None,
        )


def _profiles(text: str) -> "Sequence[str]":
    """Return the profiles of an option. BadParameter."""
    from dralab.components.profiles import ProfileError, checked

    with refusing(ProfileError, option="--api"):
        return checked([name.strip() for name in text.split(",") if name.strip()])


def _tell_without_today(profiles: "Sequence[str]", drivers: "Sequence[str]") -> None:
    """Report what does not run in a cluster without today's device API."""
    from dralab.components.older_parts import drivers_of

    if "v1" in profiles:
        return
    note("without v1, no scheduler runs: `dralab allocate --apply` places k8srm and evolution")
    if "classic" in profiles:
        note("pods of classic DRA need kube-scheduler of 1.27 to 1.30, or --api v1,classic")
    served = {each.instead_of for each in drivers_of(profiles, drivers)}
    if idle := [name for name in drivers if name not in served]:
        note(f"the devices of --driver {idle[0]} need v1: other generations do not see them")


def _load_example(cluster: "Cluster") -> None:
    from dralab.components import example

    if example.is_empty(cluster.client):
        example.load(cluster.client)
        note("loaded the example: two nodes with devices and five pods (skip it with --empty)")


def _check_system_pods(wanted: "NodeOptions") -> None:
    from dralab.components.nodes import PROCESS

    if wanted.runtime == PROCESS or not wanted:
        raise click.BadParameter(
            "needs nodes with --runtime simulated, such as those of --nodes 2",
            param_hint="--system-pods",
        )


def _check_fleet(fleet: str) -> None:
    from dralab.fleet import shapes
    from dralab.values.near_names import not_one_of

    if fleet not in shapes.names():
        raise click.BadParameter(
            f"unknown shape: {not_one_of(fleet, shapes.names())}", param_hint="--fleet"
        )


def _network(text: str) -> "IPv4Network":
    """Return the network of an option. BadParameter."""
    from ipaddress import IPv4Network

    try:
        found = IPv4Network(text)
    except ValueError as error:
        raise click.BadParameter(
            f"{error}; give a network such as 192.0.2.0/24", param_hint="--load-balancers"
        ) from error
    return found


def data_of(snapshot: Path | None, root: Path | None) -> str | None:
    """Return where objects are stored if --data does not say it; None for the default.

    The objects of a lab with directories of its own are below them: two labs share nothing.
    """
    if snapshot is not None:
        return ":memory:"
    # No node has such a name.
    return None if root is None else str(root / ".cluster")


def _commands(images: tuple[str, ...]) -> "Mapping[str, Sequence[str]]":
    """Return the programs for images. BadParameter."""
    from dralab.node.images import ImageMapError, image_map

    with refusing(ImageMapError, option="--image-map"):
        return image_map(images)


def _check_namespaces(runtime: str, root: Path | None) -> None:
    check_namespaces(runtime)
    if root is None:
        raise click.BadParameter(
            "needs --root, below which the nodes have their directories",
            param_hint="--mount-namespaces",
        )
