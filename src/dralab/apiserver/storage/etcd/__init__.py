"""Objects in etcd, where several servers share them.

`EtcdStore` is the store; `layout` says where and how objects lie in etcd, `client` speaks its API.
Importing this package needs the extra `etcd`.
"""

from dralab.apiserver.storage.etcd.address import EtcdAddress
from dralab.apiserver.storage.etcd.store import EtcdStore

__all__ = ["EtcdAddress", "EtcdStore"]
