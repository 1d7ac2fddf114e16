"""Events expire some time after their last write, by leases of etcd, as in kube-apiserver."""

import threading
from typing import Final

from dralab.apiserver.storage.etcd.client import EtcdClient
from dralab.apiserver.storage.objects import Key

EVENTS: Final = "events"
# So many events share a lease: one for each would cost etcd more than the events.
# Source: k8s.io/apiserver `storage/etcd3/lease_manager.go`.
SHARED: Final = 1000


class EventLease:
    """The lease of the events that are written now."""

    def __init__(self, client: EtcdClient, seconds: int) -> None:
        self._client = client
        self._seconds = seconds
        self._lock = threading.Lock()
        self._lease = 0
        self._left = 0

    def of(self, key: Key) -> int:
        """Return the lease that an object is written with; 0 if it stays. StorageUnavailable."""
        if key.resource != EVENTS:
            return 0
        with self._lock:
            if self._left:
                self._left -= 1
                return self._lease
        lease = self._client.lease(self._seconds)
        with self._lock:
            self._lease, self._left = lease, SHARED - 1
        return lease

    def renew(self) -> None:
        """Let the next event begin a new lease; called every minute."""
        with self._lock:
            self._left = 0
