"""Two users apply to one object; the server tracks who owns which field."""

from dralab.api.status import ApiError
from dralab.cluster import Cluster
from dralab.runtime.client import Resource

CONFIG_MAPS = Resource("", "v1", "configmaps")


def settings(**data: str) -> dict[str, object]:
    metadata = {"name": "settings", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


with Cluster() as cluster:

    def apply(who: str, *, force: bool = False, **data: str) -> dict[str, object]:
        return cluster.client.patch(
            CONFIG_MAPS,
            "settings",
            settings(**data),
            "default",
            type="apply",
            field_manager=who,
            force=force,
        )

    apply("ann", colour="red", size="3")
    print("ann applied colour and size")

    try:
        apply("bob", colour="blue")
    except ApiError as error:
        print(error.message)

    apply("bob", colour="blue", force=True)
    print("bob took the colour by force")

    found = apply("ann", shape="round")
    print("ann wants only a shape now:", found["data"])

    for entry in found["metadata"]["managedFields"]:
        print(f"  {entry['manager']} owns {', '.join(entry['fieldsV1']['f:data'])}")
