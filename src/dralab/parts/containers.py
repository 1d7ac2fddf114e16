"""The way from the server to the containers of nodes in the same process."""

from typing import TYPE_CHECKING

from dralab.apiserver.server import ApiServer
from dralab.node.streams import PodStreams

if TYPE_CHECKING:
    from dralab.node.kubelets import Kubelets


def connect(server: ApiServer, kubelets: "Kubelets") -> None:
    """Let a server answer for the pods on these nodes: logs, commands, ports."""
    server.nodes.here.append(PodStreams(kubelets))
