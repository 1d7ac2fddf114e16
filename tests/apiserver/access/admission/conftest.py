"""A server, and a webhook that it may ask."""

import pytest

from dralab.apiserver.outgoing.targets import read_service
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore
from dralab.apiserver.verbs.kinds.outgoing_calls import OutgoingSettings
from dralab.kernel.clock import ManualClock
from dralab.kernel.randomness import Randomness
from webhookserver import WebhookServer


@pytest.fixture
def hook():
    server = WebhookServer()
    yield server
    server.close()


@pytest.fixture
def server(hook):
    services = [read_service(f"default/hook:8443=127.0.0.1:{hook.port}")]
    found = ApiServer(
        MemoryStore(),
        clock=ManualClock(1_800_000_000 * 10**9),
        randomness=Randomness(1),
        outgoing=OutgoingSettings(services=services),
    )
    yield found
    found.close()
