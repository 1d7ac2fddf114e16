"""Make the pictures of the page for the documentation: docs/images/page-*.png.

    python tools/page_pictures.py [--size WxH] [--scheme dark] [--into FOLDER] [NAME ...]

Needs Chromium, Playwright and Pillow (`pip install --group browser pillow`). The clusters are made
here, the same each time: 40 nodes in racks with partitions, and 10,000 nodes of eight devices.
"""

import argparse
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from dralab.apiserver.http.connections.listening import listen
from dralab.apiserver.http.connections.serving import HttpServer
from dralab.apiserver.http.connections.serving_thread import ServingThread
from dralab.kernel.clock import SECOND, ManualClock
from dralab.web.desk import Desk
from dralab.web.own_server import PageApp
from dralab.web.routes import PageAnswers
from dralab.web.run_desk import RunDesk
from dralab.web.sources import FixedSource

IMAGES = Path(__file__).parents[1] / "docs" / "images"
EXAMPLE = Path(__file__).parents[1] / "examples" / "44-cluster-with-faults" / "day.yaml"
BROWSER = os.environ.get("DRALAB_BROWSER") or shutil.which("chromium") or "/usr/bin/chromium"
SWITCHES = [
    "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
]  # fmt: skip
SIZES = {
    "large": {"width": 560, "height": 320},
    "phone": {"width": 390, "height": 760},
    "phone-waiting": {"width": 390, "height": 760},
    "phone-report": {"width": 390, "height": 760},
    "report": {"width": 1100, "height": 900},
    "time-cluster": {"width": 1100, "height": 900},
}
SIZE = {"width": 1100, "height": 640}
DRIVER = "gpu.example.com"
SINCE = "2026-11-02T08:00:00Z"
# Pages have few colours: with so many a picture has a third of the bytes and looks the same.
COLOURS = 96
# The time of the pictures: four hours later.
NOW = 1_793_620_800 * SECOND
TEN_MINUTES = 600 * SECOND
Object = dict[str, Any]
Show = Callable[[Any], None]


def stored(kind: str, name: str, api: str = "v1", namespace: str = "", **parts: Any) -> Object:
    """Return an object as a server stores it."""
    metadata: Object = {
        "name": name,
        "uid": f"{kind}-{namespace}-{name}",
        "creationTimestamp": SINCE,
    }
    if namespace:
        metadata["namespace"] = namespace
    metadata |= parts.pop("metadata", {})
    return {"apiVersion": api, "kind": kind, "metadata": metadata, **parts}


def resource(kind: str, name: str, namespace: str = "", **parts: Any) -> Object:
    """Return an object of the device API."""
    return stored(kind, name, "resource.k8s.io/v1", namespace, **parts)


def worker(name: str, rack: int, *, cordoned: bool = False) -> Object:
    """Return a node in a rack; ten racks are a zone."""
    labels = {
        "topology.kubernetes.io/zone": f"zone-{'abc'[rack // 10 % 3]}",
        "example.com/rack": f"rack-{rack:03}",
        "kubernetes.io/hostname": name,
    }
    room = {"cpu": "128", "memory": "1Ti", "pods": "110"}
    spec: Object = {"unschedulable": True} if cordoned else {}
    status = {"allocatable": room, "conditions": [{"type": "Ready", "status": "True"}]}
    return stored("Node", name, metadata={"labels": labels}, spec=spec, status=status)


def pool(
    node: str, devices: list[Object], counters: list[Object] | None = None
) -> Iterator[Object]:
    """Yield the slices of a node's pool."""
    parts: list[Object] = [
        {"devices": devices},
        *([{"sharedCounters": counters}] if counters else []),
    ]
    for number, part in enumerate(parts):
        whole = {"name": node, "generation": 1, "resourceSliceCount": len(parts)}
        spec = {"driver": DRIVER, "nodeName": node, "pool": whole, **part}
        yield resource("ResourceSlice", f"{node}-{number}", spec=spec)


def plain_devices(count: int, chance: random.Random) -> list[Object]:
    """Return whole GPUs; one in a hundred is tainted."""
    taints = [{"key": "gpu.example.com/unhealthy", "effect": "NoExecute"}]
    return [
        {
            "name": f"gpu-{number}",
            "attributes": {"model": {"string": "B200"}},
            "capacity": {"memory": {"value": "180Gi"}},
            **({"taints": taints} if chance.random() < 0.01 else {}),
        }
        for number in range(count)
    ]


def cut_devices(count: int) -> tuple[list[Object], list[Object]]:
    """Return GPUs that can be cut into seven, and their counters."""
    devices: list[Object] = []
    for number in range(count):
        for name, slots in [("", 7), *((f"-1g-{part}", 1) for part in range(7))]:
            drawn = [{"counterSet": f"gpu-{number}", "counters": {"slots": {"value": str(slots)}}}]
            devices.append(
                {
                    "name": f"gpu-{number}{name}",
                    "attributes": {"model": {"string": "B200 1g" if name else "B200"}},
                    "capacity": {"memory": {"value": f"{25 * slots}Gi"}},
                    "consumesCounters": drawn,
                }
            )
    sets = [
        {"name": f"gpu-{number}", "counters": {"slots": {"value": "7"}}} for number in range(count)
    ]
    return devices, sets


def user_of(device: str, node: str, number: int, namespace: str = "ml") -> Iterator[Object]:
    """Yield a pod that runs with a device, and its claim."""
    name = f"job-{number}"
    result = {"request": "gpu", "driver": DRIVER, "pool": node, "device": device}
    yield resource(
        "ResourceClaim",
        name,
        namespace,
        spec={"devices": {"requests": [{"name": "gpu", "exactly": asked("gpu", 1)}]}},
        status={
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": name, "uid": f"Pod-{namespace}-{name}"}],
        },
    )
    yield running_pod(name, node, namespace)


def asked(name: str, count: int, *selectors: str) -> Object:
    """Return a request."""
    found: Object = {"deviceClassName": name, "allocationMode": "ExactCount", "count": count}
    if selectors:
        found["selectors"] = [{"cel": {"expression": each}} for each in selectors]
    return found


def running_pod(name: str, node: str = "", namespace: str = "ml") -> Object:
    """Return a pod of one claim that has its own name."""
    spec: Object = {
        "containers": [{"name": "main", "image": "train"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": name}],
    }
    if node:
        spec["nodeName"] = node
    return stored(
        "Pod",
        name,
        namespace=namespace,
        spec=spec,
        status={"phase": "Running" if node else "Pending"},
    )


def waiting_pod(name: str, request: Object) -> Iterator[Object]:
    """Yield a pod that waits, and its claim."""
    spec = {"devices": {"requests": [{"name": "gpu", "exactly": request}]}}
    yield resource("ResourceClaim", name, "ml", spec=spec)
    yield running_pod(name)


def fleet(nodes: int, *, cut_every: int = 0) -> list[Object]:
    """Return a cluster that is about three quarters full; every so many nodes have cut GPUs."""
    chance = random.Random(7)  # noqa: S311 - the same picture each time
    found = [resource("DeviceClass", "gpu", spec={})]
    number = 0
    for at in range(nodes):
        name = f"node-{at:05}" if nodes > 100 else f"node-{at:02}"
        found.append(
            worker(name, at // (10 if nodes <= 100 else 100), cordoned=chance.random() < 0.02)
        )
        is_cut = cut_every and at % cut_every == 0
        devices, counters = cut_devices(4) if is_cut else (plain_devices(8, chance), [])
        found += pool(name, devices, counters)
        for device in devices:
            if "taints" in device or (counters and not device["name"].count("-1g-")):
                continue
            if chance.random() < (0.4 if counters else 0.75):
                number += 1
                found += user_of(device["name"], name, number)
    big = 'device.capacity["gpu.example.com"].memory.compareTo(quantity("160Gi")) >= 0'
    found += waiting_pod("train-large", asked("gpu", 8, big))
    found += waiting_pod(
        "serve-h200", asked("gpu", 1, 'device.attributes["gpu.example.com"].model == "H200"')
    )
    return found


@contextmanager
def served(desk: PageAnswers) -> Iterator[str]:
    """Serve a desk; yield the address that opens the page."""
    app = PageApp(desk)
    http = HttpServer(app, listen("127.0.0.1", 0))
    thread = ServingThread(http)
    thread.start()
    try:
        yield f"{http.url}/ui#{app.code}"
    finally:
        thread.stop()


def cluster_desk(objects: list[Object]) -> Desk:
    """Return the desk of a cluster that does not change."""
    return Desk(FixedSource(objects), ManualClock(NOW), "gpu-lab", live=False)


class ChangingSource:
    """A cluster in which pods end and others start, as told."""

    follows = True
    not_judged: Sequence[str] = ()

    def __init__(self, objects: list[Object]) -> None:
        self._objects = objects
        self._revision = 1
        self._told: list[Callable[[], None]] = []

    def revision(self) -> str | None:
        """Return the number of the last change."""
        return str(self._revision)

    def read(self) -> list[Object]:
        """Return the objects."""
        return self._objects

    def events(self, *_: str) -> list[Object]:
        """Return no events."""
        return []

    def follow(self, changed: Callable[[], None]) -> Callable[[], None]:
        """Call `changed` after each change; return how to stop."""
        self._told.append(changed)
        return lambda: self._told.remove(changed)

    def release(self) -> None:
        """Keep the objects."""

    def change(self, objects: list[Object]) -> None:
        """Take other objects."""
        self._objects = objects
        self._revision += 1
        for tell in tuple(self._told):
            tell()


class FourHours:
    """A small cluster in which pods end and start for four hours, while the page looks on."""

    def __init__(self) -> None:
        self._clock = ManualClock(NOW)
        self._fixed = [
            each for each in fleet(8, cut_every=4) if each["kind"] not in {"Pod", "ResourceClaim"}
        ]
        self._source = ChangingSource(self._fixed)
        self.desk = Desk(self._source, self._clock, "gpu-lab", live=True)

    def show(self, page: Any) -> None:
        """Let the time go by, and look at an hour before its end."""
        chance = random.Random(7)  # noqa: S311 - the same picture each time
        # Of what is cut, the parts are used.
        cut = {
            each["spec"]["nodeName"]
            for each in self._fixed
            if "sharedCounters" in each.get("spec", {})
        }
        cards = [
            (each["spec"]["nodeName"], device["name"])
            for each in self._fixed
            if each["kind"] == "ResourceSlice"
            for device in each["spec"].get("devices", ())
            if "taints" not in device
            and ("1g" in device["name"] or each["spec"]["nodeName"] not in cut)
        ]
        ends: dict[tuple[str, str], tuple[int, int]] = {}
        page.get_by_text("live, as of").wait_for()
        for turn in range(24):
            ends = {card: held for card, held in ends.items() if held[1] > turn}
            for place, card in enumerate(cards):
                if card not in ends and chance.random() < (0.35 if turn > 3 else 0.15):
                    ends[card] = (len(cards) * turn + place, turn + chance.randint(2, 9))
            held = [
                each
                for (node, device), (number, _) in ends.items()
                for each in user_of(device, node, number, ("ml", "serving", "lab")[number % 3])
            ]
            self._clock.advance(TEN_MINUTES)
            self._source.change([*self._fixed, *held])
            # As many may be used as before: only the time tells that the page has seen it.
            hours, minutes = divmod(10 * (turn + 1), 60)
            page.get_by_text(f"as of {hours or 12}:{minutes:02}:00 PM").wait_for()
        page.get_by_role("tab", name="Time").click()
        slider = page.get_by_role("slider", name="Time")
        slider.fill(str(float(slider.get_attribute("max")) - 4500))
        page.wait_for_timeout(500)


def show_fleet(page: Any) -> None:
    """Wait until the map is drawn."""
    page.locator("canvas[data-paint]").wait_for()
    page.wait_for_timeout(300)


def show_node(page: Any) -> None:
    """Choose a node with cut devices."""
    show_fleet(page)
    page.get_by_role("searchbox").fill("node-04")
    page.wait_for_timeout(500)


def show_waiting(page: Any) -> None:
    """Open the explanation of a pod that waits."""
    page.get_by_role("tab", name="Waiting").click()
    page.get_by_role("button", name="train-large").click()
    page.get_by_role("heading", name="What would help").wait_for()


def show_causes(page: Any) -> None:
    """Open what waits, by cause."""
    page.get_by_role("tab", name="Waiting").click()
    page.get_by_role("heading", level=3).first.wait_for()
    page.wait_for_timeout(300)


def show_story(page: Any) -> None:
    """Open the way of a pod that runs to its devices."""
    show_fleet(page)
    page.get_by_role("searchbox").fill("node-06")
    page.get_by_role("complementary").get_by_role("button", name="pod ml/").first.click()
    page.get_by_role("heading", name="Events").wait_for()
    page.wait_for_timeout(500)


def show_lights(page: Any) -> None:
    """Open the explanation of a pod that waits, with the devices that it could use."""
    show_waiting(page)
    page.get_by_text("could serve it now").wait_for()
    page.wait_for_timeout(300)


def show_first_steps(page: Any) -> None:
    """Open the explanation of the pod that waits in the cluster of the first steps."""
    page.get_by_role("tab", name="Waiting").click()
    page.get_by_role("button", name="large").click()
    page.get_by_role("heading", name="What would help").wait_for()
    page.wait_for_timeout(500)


def show_moves(page: Any) -> None:
    """Show the second step of a plan that makes room."""
    page.get_by_role("tab", name="What if").click()
    page.get_by_role("button", name="Which pods have to move?").click()
    page.get_by_role("button", name="Next").click()
    page.wait_for_timeout(500)


def show_time(page: Any) -> None:
    """Wait until the curves are drawn."""
    page.get_by_role("img").first.wait_for()
    page.wait_for_timeout(500)


def day() -> tuple[PageAnswers, Show]:
    """Return the desk of an example's day."""
    return example_day()[0], show_time


def report() -> tuple[PageAnswers, Show]:
    """Return the desk of an example's day, and what shows its report."""
    desk, content = example_day()

    def show(page: Any) -> None:
        page.goto("about:blank")  # the page of `dralab ui` lets nobody write into it
        page.set_content(content)
        page.wait_for_timeout(500)

    return desk, show


def example_day() -> tuple[PageAnswers, str]:
    """Simulate an example's day; return its desk and its report."""
    with tempfile.TemporaryDirectory() as parent:
        folder = Path(parent) / "day"
        command = ["simulate", "run", str(EXAMPLE), "--write", str(folder)]
        subprocess.run([sys.executable, "-m", "dralab", *command], check=True, capture_output=True)
        return RunDesk(folder), (folder / "report.html").read_text(encoding="utf-8")


def two_nodes() -> tuple[PageAnswers, Show]:
    """Return the desk of the cluster of the first steps: a pod with two devices, one that waits."""
    found = [resource("DeviceClass", DRIVER, spec={})]
    for name in ("node-0", "node-1"):
        node = stored(
            "Node",
            name,
            spec={},
            status={
                "allocatable": {"cpu": "64", "memory": "256Gi", "pods": "110"},
                "conditions": [{"type": "Ready", "status": "True"}],
            },
        )
        found += [node, *pool(name, [{"name": f"gpu-{number}"} for number in range(8)])]
    for name, count in (("train", 2), ("large", 20)):
        request = asked("gpus", count) | {"deviceClassName": DRIVER}
        spec = {"devices": {"requests": [{"name": "gpus", "exactly": request}]}}
        held = [
            {"request": "gpus", "driver": DRIVER, "pool": "node-0", "device": f"gpu-{number}"}
            for number in range(count)
        ]
        reserved = [{"resource": "pods", "name": name, "uid": f"Pod-default-{name}"}]
        status = {"allocation": {"devices": {"results": held}}, "reservedFor": reserved}
        runs = name == "train"
        more = {"status": status} if runs else {}
        found += [
            resource("ResourceClaim", name, "default", spec=spec, **more),
            running_pod(name, "node-0" if runs else "", "default"),
        ]
    return cluster_desk(found), show_first_steps


def history() -> tuple[PageAnswers, Show]:
    """Return the desk of a cluster that changes."""
    found = FourHours()
    return found.desk, found.show


def lab(show: Show, nodes: int = 40, cut_every: int = 4) -> Callable[[], tuple[PageAnswers, Show]]:
    """Return what makes the desk of a cluster."""
    return lambda: (cluster_desk(fleet(nodes, cut_every=cut_every)), show)


PICTURES: dict[str, tuple[Callable[[], tuple[PageAnswers, Show]], str]] = {
    "first-steps": (two_nodes, "light"),
    "fleet": (lab(show_fleet), "light"),
    "fleet-dark": (lab(show_fleet), "dark"),
    "node": (lab(show_node), "light"),
    "waiting": (lab(show_lights), "light"),
    "story": (lab(show_story), "light"),
    "what-if": (lab(show_moves), "light"),
    "time": (day, "light"),
    "time-cluster": (history, "light"),
    "phone": (lab(show_fleet), "light"),
    "phone-waiting": (lab(show_causes), "dark"),
    "phone-report": (report, "light"),
    "report": (report, "light"),
    "large": (lab(show_fleet, 10_000, 0), "light"),
}


def main() -> None:
    """Make the named pictures, or all; in another size or scheme to look at them elsewhere."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--size", default="")
    parser.add_argument("--scheme", default="")
    parser.add_argument("--into", type=Path, default=IMAGES)
    given = parser.parse_args()
    from PIL import Image
    from playwright.sync_api import sync_playwright

    given.into.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=BROWSER, args=SWITCHES)
        for name in given.names or PICTURES:
            make, scheme = PICTURES[name]
            desk, show = make()
            with served(desk) as address:
                size: Any = SIZES.get(name, SIZE)
                if given.size:
                    width, _, height = given.size.partition("x")
                    size = {"width": int(width), "height": int(height)}
                page = browser.new_page(
                    viewport=size,
                    color_scheme=given.scheme or scheme,
                    locale="en-US",
                    timezone_id="UTC",
                )
                page.set_default_timeout(120_000)
                page.clock.set_fixed_time(NOW // SECOND)
                page.goto(address)
                show(page)
                path = given.into / f"page-{name}.png"
                page.screenshot(path=path)
                few = (
                    Image.open(path)
                    .convert("RGB")
                    .quantize(COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
                )
                few.save(path, optimize=True)
                print(f"{path}: {path.stat().st_size:,} bytes")
                page.close()
        browser.close()


if __name__ == "__main__":
    main()
