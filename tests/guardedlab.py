"""A cluster whose parts may do only what their users may."""

from dralab.apiserver.access.users import user_named
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.components import control_plane, nodes, older_parts, profiles, roles
from dralab.controllers import volume_folders
from dralab.controllers.volume_folders import VolumeFolders
from dralab.kernel.randomness import Randomness
from dralab.runtime.local import LocalClient
from dralab.runtime.manager import Manager
from dralab.runtime.resources import PODS
from dralab.runtime.simulated import SimulatedEngine
from labs import START

SECOND = 10**9


class Guarded:
    """A cluster in simulated time whose server writes down what it refuses.

    Scheduler, controllers and nodes have users of their own, as in `dralab up`.
    """

    def __init__(self, served=("v1", "k8srm"), *, without=(), folders=None, drivers=None):
        classic = "classic" in served
        self.engine = SimulatedEngine()
        self.engine.clock.advance_to(START)
        clock = self.engine.clock
        self.server = ApiServer(
            MemoryStore(), clock=clock, randomness=Randomness(1), authorization=("Node", "RBAC")
        )
        profiles.install(self.server.resources, profiles.checked(served))
        self.refused = []
        context = self.server.resources.context
        self.inner, context.authorizer = context.authorizer, self
        self.client = LocalClient(self.server.resources, self.server.hub)
        kinds = self.server.resources.kinds
        roles.install(self.client, older_parts.served(kinds))
        alone = "controllers" in without
        plane = self.manager(control_plane.SCHEDULER_USER if alone else control_plane.READER)
        scheduler = control_plane.assemble(plane, kinds=kinds, without=without)
        if scheduler is not None:
            scheduler.lead()
        if drivers is None:
            drivers = ("fake",) if classic else ("gpu",)
        node_manager = self.manager(nodes.NODES_USER)
        wanted = nodes.NodeOptions(nodes=2, drivers=drivers, classic=classic)
        also = []
        if folders is not None:
            VolumeFolders(node_manager.acting_as(volume_folders.ACCOUNT), folders)
            also.append(volume_folders.default_class(volume_folders.FOLDERS))
        self.kubelets = nodes.assemble(node_manager, wanted, also=also)
        plane.start()
        node_manager.start()
        self.wait(5)

    def manager(self, user):
        return Manager(self.engine, self.of(user), Randomness(2), client_of=self.of)

    def of(self, user):
        return LocalClient(self.server.resources, self.server.hub, user=user_named(user))

    def authorize(self, wanted):
        decision = self.inner.authorize(wanted)
        if not decision.allowed:
            self.refused.append(str(wanted))
        return decision

    def wait(self, seconds):
        self.engine.run(self.engine.clock.now() + seconds * SECOND)

    def running(self):
        pods = self.client.list(PODS).items
        return sorted(
            pod["metadata"]["name"].partition("-")[0]
            for pod in pods
            if pod["status"]["phase"] in {"Running", "Succeeded"}
        )
