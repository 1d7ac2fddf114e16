"""Servers that share an etcd: a role that one of them stores counts for all."""

import pytest

pytest.importorskip("grpc")

from dralab.api.status import ApiError
from dralab.apiserver.storage.etcd import EtcdAddress
from dralab.cluster import Cluster, Options
from dralab.components.roles import CLUSTER_BINDINGS
from dralab.runtime.resources import CLUSTER_ROLES, PODS
from etcds import prefixes
from fakeetcd import FakeEtcd
from offices import rule, user


def may_list(cluster):
    try:
        cluster.client_of("jane").list(PODS, "default")
    except ApiError as error:
        return error.reason != "Forbidden"
    return True


def test_a_role_of_one_server_counts_for_the_other():
    with FakeEtcd() as etcd:
        address = EtcdAddress.read(etcd.url, prefix=next(prefixes))
        options = Options(store=address, authorization=("Node", "RBAC"))
        with Cluster(options) as one, Cluster(options) as other:
            assert len(other.client.list(CLUSTER_ROLES).items) == 69
            assert not may_list(one)
            assert not may_list(other)
            role = {"metadata": {"name": "reader"}, "rules": [rule("list", "pods")]}
            one.client.create(CLUSTER_ROLES, role)
            ref = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "reader"}
            binding = {"metadata": {"name": "jane"}, "roleRef": ref, "subjects": [user("jane")]}
            one.client.create(CLUSTER_BINDINGS, binding)
            assert may_list(one)
            while not may_list(other):
                pass  # as soon as it hears of it
            other.client.delete(CLUSTER_BINDINGS, "jane")
            assert not may_list(other)
            while may_list(one):
                pass
