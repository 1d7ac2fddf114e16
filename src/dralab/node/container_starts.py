"""The start parameters of a container, from its pod and its node."""

from dralab.node.container_environment import args_of, argv_of, config_of
from dralab.node.container_runs import RunningContainer
from dralab.node.containers import ContainerStart
from dralab.node.etc_files import etc_files, hostname_of
from dralab.node.network.sandbox import Sandbox
from dralab.node.node_context import NodeContext
from dralab.node.pod_files import PodFiles
from dralab.node.privileges import privileges_of
from dralab.node.termination_messages import DEFAULT_PATH
from dralab.objects.metadata import controller_of, uid_of
from dralab.values.json_types import JsonDict


def start_of(
    node: NodeContext, pod: JsonDict, each: RunningContainer, files: PodFiles, sandbox: Sandbox
) -> ContainerStart:
    """Return how a container is to start; `pod` has its address in its status.

    ConfigError names what is missing; CdiError: its devices cannot be given to it.
    """
    config = config_of(node.client, pod, each.spec, node.links(pod))
    node.cdi.inject(config, node.claims.of_containers.cdi_ids(pod, each.spec))
    metadata, owner = pod["metadata"], controller_of(pod)
    resources, init = each.spec.get("resources") or {}, each.init and not each.sidecar
    return ContainerStart(
        namespace=metadata.get("namespace", ""),
        pod=metadata["name"],
        pod_uid=uid_of(pod),
        node=node.name,
        name=each.name,
        image=each.spec.get("image", ""),
        argv=argv_of(each.spec, config.env),
        args=args_of(each.spec, config.env),
        files=lambda volume: files.of(pod, volume),
        working_dir=each.spec.get("workingDir", ""),
        config=config,
        annotations=metadata.get("annotations") or {},
        ends=init or (owner is not None and owner["kind"] == "Job"),
        init=init,
        log=each.log,
        limits=resources.get("limits") or {},
        resources=resources,
        message_path=each.spec.get("terminationMessagePath", DEFAULT_PATH),
        privileges=privileges_of(pod, each.spec),
        etc=etc_files(pod, sandbox.ip, node.dns),
        hostname=hostname_of(pod, node.name if node.network is not None else ""),
        sandbox=sandbox,
        stdin=bool(each.spec.get("stdin")),
        stdin_once=bool(each.spec.get("stdinOnce")),
        tty=bool(each.spec.get("tty")),
    )
