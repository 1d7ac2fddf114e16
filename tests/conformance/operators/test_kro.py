"""kro: a graph of resources becomes a kind, and its instances become objects."""

import pytest

from dralab.runtime.client import Resource
from dralab.runtime.resources import DEPLOYMENTS, SERVICES
from operatorlab import NAMESPACE, names, patch, there
from waiting import until

pytestmark = pytest.mark.conformance

GRAPH = """
apiVersion: kro.run/v1alpha1
kind: ResourceGraphDefinition
metadata: {name: webapp}
spec:
  schema:
    apiVersion: v1alpha1
    kind: WebApp
    spec:
      replicas: integer | default=2
    status:
      available: ${deployment.status.availableReplicas}
      ip: ${service.spec.clusterIP}
  resources:
  - id: deployment
    template:
      apiVersion: apps/v1
      kind: Deployment
      metadata: {name: "${schema.metadata.name}"}
      spec:
        replicas: ${schema.spec.replicas}
        selector: {matchLabels: {app: "${schema.metadata.name}"}}
        template:
          metadata: {labels: {app: "${schema.metadata.name}"}}
          spec: {containers: [{name: web, image: nginx}]}
    readyWhen: ["${deployment.status.availableReplicas == deployment.spec.replicas}"]
  - id: service
    template:
      apiVersion: v1
      kind: Service
      metadata: {name: "${schema.metadata.name}"}
      spec:
        selector: "${deployment.spec.selector.matchLabels}"
        ports: [{port: 80}]
"""
GRAPHS = Resource("kro.run", "v1alpha1", "resourcegraphdefinitions", namespaced=False)
APPS = Resource("kro.run", "v1alpha1", "webapps")


def test_kro_makes_a_kind_of_a_graph_and_its_objects_of_an_instance(
    running_cluster, client, apply, start, operator
):
    sources, program = operator("kro")
    apply(sources / "helm/crds")
    start(program, "--metrics-bind-address=0", "--health-probe-bind-address=127.0.0.1:0")
    apply(GRAPH)
    until(lambda: (client.get(GRAPHS, "webapp").get("status") or {}).get("state") == "Active")
    client.create(APPS, {"metadata": {"name": "shop"}, "spec": {"replicas": 3}}, NAMESPACE)
    # Its Service comes after the Deployment is ready.
    until(lambda: (there(client, APPS, "shop").get("status") or {}).get("state") == "ACTIVE")
    status = client.get(APPS, "shop", NAMESPACE)["status"]
    address = client.get(SERVICES, "shop", NAMESPACE)["spec"]["clusterIP"]
    assert (status["available"], status["ip"]) == (3, address)
    patch(client, APPS, "shop", {"replicas": 1})
    until(lambda: client.get(DEPLOYMENTS, "shop", NAMESPACE)["status"].get("replicas") == 1)
    client.delete(APPS, "shop", NAMESPACE)
    until(lambda: there(client, APPS, "shop") is None)
    assert names(client, DEPLOYMENTS) == set()
