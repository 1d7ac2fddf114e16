"""Crossplane: a composite resource becomes the objects that a function composes.

Its own `core init` makes the certificates and installs definitions and webhooks. The function is a
program of its own, as a package would be: it speaks gRPC, with a certificate of Crossplane's
authority. No package is pulled: what the package manager writes about the function is given.
"""

import base64
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

from authorities import Authority
from dralab.api.status import ApiError
from dralab.runtime.client import Resource
from dralab.runtime.resources import CONFIG_MAPS, DEPLOYMENTS, NAMESPACES, SECRETS
from operatorlab import NAMESPACE, admitted, free_port, holds, mounted, names, pem_of, there, today
from waiting import until

PORT = free_port()
SYSTEM = "crossplane-system"
pytestmark = [
    pytest.mark.conformance,
    pytest.mark.filterwarnings("ignore:Attribute.s length"),  # its authority is from "Earth"
    pytest.mark.dralab(nodes=2, services=[f"{SYSTEM}/crossplane-webhooks=127.0.0.1:{PORT}"]),
]

# --- the function -------------------------------------------------------------------------------

TEXT, NUMBER, MESSAGE = (
    descriptor_pb2.FieldDescriptorProto.TYPE_STRING,
    descriptor_pb2.FieldDescriptorProto.TYPE_INT32,
    descriptor_pb2.FieldDescriptorProto.TYPE_MESSAGE,
)
STRUCT = ".google.protobuf.Struct"
# The parts of proto/fn/v1/run_function.proto that it needs: (field, number, type or message, many).
MESSAGES = {
    "Resource": [("resource", 1, STRUCT, False), ("ready", 3, NUMBER, False)],
    "Named": [("key", 1, TEXT, False), ("value", 2, ".Resource", False)],
    "State": [("composite", 1, ".Resource", False), ("resources", 2, ".Named", True)],
    "Meta": [("tag", 1, TEXT, False)],
    "Request": [
        ("meta", 1, ".Meta", False),
        ("observed", 2, ".State", False),
        ("desired", 3, ".State", False),
    ],
    "Response": [("meta", 1, ".Meta", False), ("desired", 2, ".State", False)],
}
READY, UNREADY = 1, 2


def messages():
    """The classes of these messages."""
    file = descriptor_pb2.FileDescriptorProto(name="function.proto", package="", syntax="proto3")
    file.dependency.append("google/protobuf/struct.proto")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, number, kind, many in fields:
            one = message.field.add(name=field, number=number, label=3 if many else 1)
            if isinstance(kind, str):
                one.type, one.type_name = MESSAGE, kind
            else:
                one.type = kind
    pool = descriptor_pool.DescriptorPool()
    from google.protobuf import struct_pb2

    pool.AddSerializedFile(struct_pb2.DESCRIPTOR.serialized_pb)
    pool.Add(file)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(name)) for name in MESSAGES
    }


MADE = messages()


def composed(app, observed):
    """What an App becomes, and what is ready of it; and the status of the App."""
    labels, spec = {"app": app["metadata"]["name"]}, app["spec"]
    containers = [{"name": "web", "image": "nginx"}]
    template = {"metadata": {"labels": labels}, "spec": {"containers": containers}}
    deployment = {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {
            "replicas": spec["replicas"],
            "selector": {"matchLabels": labels},
            "template": template,
        },
    }
    config = {"apiVersion": "v1", "kind": "ConfigMap", "data": {"greeting": spec["greeting"]}}
    available = (observed.get("web", {}).get("status") or {}).get("availableReplicas", 0)
    ready = {"web": available == spec["replicas"], "config": "config" in observed}
    return {"web": deployment, "config": config}, ready, {"available": available}


def answer(asked, _):
    """Run the function."""
    states = {
        each.key: json_format.MessageToDict(each.value.resource)
        for each in asked.observed.resources
    }
    app = json_format.MessageToDict(asked.observed.composite.resource)
    found, ready, status = composed(app, states)
    response = MADE["Response"](meta={"tag": asked.meta.tag})
    json_format.ParseDict({"status": status}, response.desired.composite.resource)
    for name, value in found.items():
        one = response.desired.resources.add(key=name)
        json_format.ParseDict(value, one.value.resource)
        one.value.ready = READY if ready[name] else UNREADY
    return response


@pytest.fixture
def function():
    """Serve the function with a certificate of an authority; return its address."""
    servers = []

    def serve(certificate, key, authority):
        server = grpc.server(ThreadPoolExecutor(2))
        handler = grpc.unary_unary_rpc_method_handler(
            answer,
            request_deserializer=MADE["Request"].FromString,
            response_serializer=MADE["Response"].SerializeToString,
        )
        service = "apiextensions.fn.proto.v1.FunctionRunnerService"
        handlers = grpc.method_handlers_generic_handler(service, {"RunFunction": handler})
        server.add_generic_rpc_handlers((handlers,))
        given = grpc.ssl_server_credentials([(key, certificate)], authority, True)
        port = server.add_secure_port("127.0.0.1:0", given)
        server.start()
        servers.append(server)
        return f"dns:///localhost:{port}"

    yield serve
    for server in servers:
        server.stop(None).wait()


# --- what is composed ---------------------------------------------------------------------------

DEFINITION = """
apiVersion: apiextensions.crossplane.io/v2
kind: CompositeResourceDefinition
metadata: {name: apps.example.org}
spec:
  group: example.org
  scope: Namespaced
  names: {kind: App, plural: apps}
  versions:
  - name: v1
    served: true
    referenceable: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              replicas: {type: integer, default: 2}
              greeting: {type: string, default: hello}
          status: {type: object, properties: {available: {type: integer}}}
"""
COMPOSITION = """
apiVersion: apiextensions.crossplane.io/v1
kind: Composition
metadata: {name: apps}
spec:
  compositeTypeRef: {apiVersion: example.org/v1, kind: App}
  mode: Pipeline
  pipeline: [{step: compose, functionRef: {name: compose}}]
"""
REVISION = {
    "metadata": {
        "name": "compose-1",
        "labels": {"pkg.crossplane.io/package": "compose"},
        "annotations": {"crossplane.io/paused": "true"},  # nothing is pulled
    },
    "spec": {"desiredState": "Active", "image": "example.org/compose:v1", "revision": 1},
}
DEFINITIONS = Resource(
    "apiextensions.crossplane.io", "v2", "compositeresourcedefinitions", namespaced=False
)
REVISIONS = Resource("pkg.crossplane.io", "v1", "functionrevisions", namespaced=False)
USAGES = Resource("protection.crossplane.io", "v1beta1", "usages")
APPS = Resource("example.org", "v1", "apps")
NAMES = {
    "--tls-server-secret-name": "crossplane-tls-server",
    "--tls-client-secret-name": "crossplane-tls-client",
}


def secret(client, name):
    """The data of a Secret of Crossplane's."""
    data = client.get(SECRETS, name, SYSTEM)["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def test_a_composite_becomes_what_its_function_composes(
    running_cluster, client, apply, start, operator, function, kubeconfig, tmp_path
):
    sources, program = operator("crossplane")
    client.create(NAMESPACES, {"metadata": {"name": SYSTEM}})
    words = [
        *(f"{flag}={name}" for flag, name in NAMES.items()),
        "--tlsca-secret-name=crossplane-root-ca",
        f"--cr-ds-path={sources / 'cluster/crds'}",
        f"--webhook-configurations-path={sources / 'cluster/webhookconfigurations'}",
        "--webhook-service-name=crossplane-webhooks",
        f"--webhook-service-namespace={SYSTEM}",
        "--webhook-service-port=9443",
    ]
    done = subprocess.run(
        [str(program), "core", "init", *words],
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    folders = []
    for flag, name in NAMES.items():
        folder = tmp_path / name
        folder.mkdir()
        assert mounted(client, SECRETS, name, SYSTEM, folder)
        folders.append(f"{flag.removesuffix('-secret-name')}-certs-dir={folder}")
    caches = [f"--{name}-cache-dir={tmp_path}" for name in ("xpkg", "xfn")]
    ports = [f"--webhook-port={PORT}", "--metrics-port=0", "--health-probe-port=0"]
    start(program, "core", "start", *folders, *caches, *ports)

    root = secret(client, "crossplane-root-ca")
    authority = Authority.of(root["tls.crt"], root["tls.key"], today())
    certificate, key = authority.issue("compose", usage=None, names=[x509.DNSName("localhost")])
    pem = certificate.public_bytes(Encoding.PEM)
    address = function(pem, pem_of(key), root["tls.crt"])
    client.create(REVISIONS, REVISION)
    status = {"endpoint": address, "capabilities": ["composition"]}
    client.patch(REVISIONS, "compose-1", {"status": status}, subresource="status")

    apply(DEFINITION)
    until(lambda: holds(client.get(DEFINITIONS, "apps.example.org"), "Established"))
    apply(COMPOSITION)
    client.create(APPS, {"metadata": {"name": "shop"}, "spec": {"replicas": 3}}, NAMESPACE)
    until(lambda: holds(there(client, APPS, "shop"), "Ready"))
    app = client.get(APPS, "shop", NAMESPACE)
    assert app["status"]["available"] == 3
    kinds = {each["kind"] for each in app["spec"]["crossplane"]["resourceRefs"]}
    assert kinds == {"Deployment", "ConfigMap"}
    assert own(client, CONFIG_MAPS)[0]["data"] == {"greeting": "hello"}

    # A change, and one that another client made to what was composed.
    client.patch(APPS, "shop", {"spec": {"greeting": "good day"}}, NAMESPACE)
    until(lambda: own(client, CONFIG_MAPS)[0]["data"] == {"greeting": "good day"})
    [deployment] = own(client, DEPLOYMENTS)
    name = deployment["metadata"]["name"]
    client.patch(DEPLOYMENTS, name, {"spec": {"replicas": 1}}, NAMESPACE)
    until(lambda: own(client, DEPLOYMENTS)[0]["spec"]["replicas"] == 3)

    # Its webhook keeps what is in use.
    [config] = own(client, CONFIG_MAPS)
    used = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "resourceRef": {"name": config["metadata"]["name"]},
    }
    usage = {"metadata": {"name": "kept"}, "spec": {"of": used, "reason": "shared"}}
    until(lambda: admitted(client, USAGES, usage, NAMESPACE))
    until(lambda: holds(there(client, USAGES, "kept"), "Ready"))
    with pytest.raises(ApiError, match=r"nousages\.protection\.crossplane\.io.*1 usage"):
        client.delete(CONFIG_MAPS, config["metadata"]["name"], NAMESPACE)
    client.delete(USAGES, "kept", NAMESPACE)
    until(lambda: there(client, USAGES, "kept") is None)

    client.delete(APPS, "shop", NAMESPACE)
    until(lambda: there(client, APPS, "shop") is None)
    until(lambda: not own(client, CONFIG_MAPS) and names(client, DEPLOYMENTS) == set())
    client.delete(DEFINITIONS, "apps.example.org")
    until(lambda: there(client, DEFINITIONS, "apps.example.org", "") is None)


def own(client, resource):
    """The objects that were composed."""
    found = client.list(resource, NAMESPACE, label_selector="crossplane.io/composite=shop")
    return found.items
