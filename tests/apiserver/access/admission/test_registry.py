"""The registry of admission plugins: each class is where it says, and has its place in the order."""

from importlib import import_module
from inspect import getmembers, isclass
from pathlib import Path

import dralab.apiserver
from dralab.apiserver.access.admission.registry import OTHERS, OURS, OWN, PLUGINS, place_of
from dralab.apiserver.server import ApiServer
from dralab.apiserver.storage import MemoryStore


def test_every_plugin_is_where_the_registry_says():
    found = {name: place.split(":") for name, place in PLUGINS.items() if place}
    assert len(found) > 20
    for name, (module, class_name) in found.items():
        assert getattr(import_module(module), class_name).name == name


def test_every_class_with_the_shape_of_a_plugin_is_registered():
    root = Path(dralab.apiserver.__file__).parent
    seen = set()
    for folder in ("access", "verbs"):
        for file in (root / folder).rglob("*.py"):
            path = file.relative_to(root).with_suffix("")
            module = import_module(".".join(("dralab.apiserver", *path.parts)))
            for _, each in getmembers(module, isclass):
                acts = hasattr(each, "admit") or hasattr(each, "validate")
                if (
                    acts
                    and each.__module__ == module.__name__
                    and isinstance(vars(each).get("name"), str)
                ):
                    seen.add(each.name)
    assert seen == OURS | OWN
    assert not OTHERS & seen


def test_a_server_asks_its_plugins_in_the_order_of_the_registry():
    server = ApiServer(MemoryStore(), authorization=["Node", "RBAC"])
    for chain in (server.resources.context.admission, server.resources.context.validating):
        names = [each.name for each in chain]
        assert len(names) > 2
        assert names == sorted(names, key=place_of)
    names = [each.name for each in server.resources.context.admission]
    assert names.index("NodeRestriction") < names.index("TaintNodesByCondition")
    server.close()
