"""Forgetting etcd's history: one of the servers does it every five minutes.

They elect one as kube-apiservers do, through a key that each tries to write first; real ones
take part, and a server that dies leaves no lock behind. Source: k8s.io/apiserver
`storage/etcd3/compact.go`.
"""

import logging
import threading
from collections.abc import Callable
from typing import Final

from dralab.apiserver.storage.errors import StorageUnavailable
from dralab.apiserver.storage.etcd._generated import etcd_v3_pb2 as pb
from dralab.apiserver.storage.etcd.client import EtcdClient

logger = logging.getLogger(__name__)

KEY: Final = b"compact_rev_key"
EVERY: Final = 300.0  # seconds: kube-apiserver --etcd-compaction-interval
MINUTE: Final = 60.0


class Compactor:
    """Takes part in compacting from its own thread; `each_minute` is called there, too."""

    def __init__(self, client: EtcdClient, each_minute: Callable[[], None] = lambda: None) -> None:
        self._client = client
        self._each_minute = each_minute
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="dralab-compaction", daemon=True)
        self._thread.start()
        # What the key's version and etcd's revision were at the last look.
        self.version = 0
        self.revision = 0

    def stop(self) -> None:
        """End the thread."""
        self._over.set()
        self._thread.join()

    def look(self) -> bool:
        """Write the key unless another server did so since the last time; then compact.

        Return whether this server compacted: it forgets what happened before the
        last look. StorageUnavailable.
        """
        compare = pb.Compare(target=pb.Compare.VERSION, key=KEY, version=self.version)
        put = pb.PutRequest(key=KEY, value=str(self.revision).encode())
        request = pb.TxnRequest(
            compare=[compare],
            success=[pb.RequestOp(request_put=put)],
            failure=[pb.RequestOp(request_range=pb.RangeRequest(key=KEY))],
        )
        answer = self._client.transact(request).answer
        due, self.revision = self.revision, answer.header.revision
        if not answer.succeeded:
            self.version = answer.responses[0].response_range.kvs[0].version
            return False
        self.version += 1
        if due:
            self._client.compact(due)
        return True

    def _run(self) -> None:
        minutes = 0
        while not self._over.wait(MINUTE):
            self._each_minute()
            minutes += 1
            if minutes * MINUTE % EVERY:
                continue
            try:
                self.look()
            except StorageUnavailable as error:
                logger.warning("etcd's history was not compacted: %s", error)
