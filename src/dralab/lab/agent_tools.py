"""What `dralab mcp` offers to a language model: questions, each bounded, and nothing that changes.

A simulation runs in a process of its own, with limits of time and memory, in an empty folder: a
scenario that names a file or code finds none, and programs are not started.
"""

import resource
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Lock
from typing import Any, Final

from dralab.lab.answers import ColumnTable
from dralab.lab.runs import simulate
from dralab.lab.view import Lab
from dralab.simulation.scenario.schedulers import BUILT_IN
from dralab.simulation.scenario.schedulers import EXTERNAL as PROGRAM
from dralab.values.near_names import not_one_of

MOST_ROWS: Final = 50
MOST_NODES: Final = 10_000
LONGEST_SCENARIO: Final = 1 << 18
SECONDS: Final = 60
MEMORY: Final = 4 << 30


class AgentTools:
    """The tools; `read` reads the cluster, anew for each question."""

    def __init__(self, read: Callable[[], Lab]) -> None:
        self._read = read
        self._lock = Lock()

    def explain(self, name: str = "", node: str = "") -> dict[str, Any]:
        """Explain why a pod or claim waits for devices or nodes, and what would help.

        `name` is NAMESPACE/NAME; without one, lists what waits. With `node`, explains that node
        alone. `confirmed` helps were tried on the whole cluster.
        """
        with self._lock:
            lab = self._read()
            if not name:
                return {"nodes": len(lab.nodes), "waits": _some(lab.pending)}
            found = lab.explain(name, node=node)
            return {
                "fits": found.fits,
                "node": found.node,
                "code": found.code,
                "headline": found.headline,
                "page": str(found),
                "helps": [
                    {"text": each.text, "confirmed": each.confirmed, "command": each.command}
                    for each in found.helps[:MOST_ROWS]
                ],
            }

    def what_if(
        self,
        add_nodes: dict[str, int] | None = None,
        remove_nodes: list[str] | None = None,
        cordon: list[str] | None = None,
    ) -> dict[str, Any]:
        """Show which pods would start, move or wait after a change; nothing is changed.

        `add_nodes` maps a shape (h100, l40s …) or a node to copy to how many.
        """
        more = add_nodes or {}
        if sum(map(abs, more.values())) > MOST_NODES:
            raise ValueError(f"add_nodes: at most {MOST_NODES} nodes in all")
        with self._lock:
            found = self._read().what_if(
                add_nodes=more, remove=remove_nodes or (), cordon=cordon or ()
            )
            return {
                "summary": str(found),
                "starts": _rows(found.starts),
                "moves": _rows(found.moves),
                "waits": _rows(found.waits),
            }

    def plan(
        self, prices: dict[str, float] | None = None, budget: float | None = None
    ) -> dict[str, Any]:
        """Find the fewest or cheapest nodes to add so that all waiting pods run.

        `prices` maps shapes, or nodes to copy, to the price of one; without it the first node that
        has devices is copied.
        """
        with self._lock:
            found = self._read().plan(prices or (), budget=budget)
            return {
                "summary": str(found),
                "nodes": dict(found.nodes),
                "price": found.price,
                "served": _some(found.served),
                "waits": _rows(found.waits),
            }

    def simulate(self, scenario: str, scheduler: str = "", seed: int = 0) -> dict[str, Any]:
        """Run a scenario (YAML text: fleet, workload) in simulated time, and return its numbers.

        `scheduler` is one of dralab's (fgd, bestfit, firstfit, default, easy …). Files, code and
        programs that a scenario names are not available.
        """
        if len(scenario) > LONGEST_SCENARIO:
            raise ValueError(f"scenario: is longer than {LONGEST_SCENARIO} characters")
        if scheduler and scheduler not in BUILT_IN:
            raise ValueError(f"scheduler: {not_one_of(scheduler, BUILT_IN)}")
        with (
            self._lock,
            ProcessPoolExecutor(1, get_context("spawn"), _limited, (SECONDS, MEMORY)) as pool,
        ):
            running = pool.submit(_simulated, scenario, scheduler, seed)
            try:
                return running.result()
            except (BrokenProcessPool, MemoryError):
                limits = f"{SECONDS} s of CPU time and {MEMORY >> 30} GiB"
                raise ValueError(f"the simulation needs more than {limits}: shrink it") from None


def _limited(seconds: int, memory: int) -> None:
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (memory, memory))


def _simulated(text: str, scheduler: str, seed: int) -> dict[str, Any]:
    """Run a scenario; called in a process of its own."""
    with TemporaryDirectory(prefix="dralab-") as folder:
        file = Path(folder, "scenario.yaml")
        file.write_text(text, encoding="utf-8")
        from dralab.lab.runs import load

        found = load(file, scheduler=scheduler or None, seed=seed)
        if found.scheduler == PROGRAM:
            raise ValueError("scheduler: external programs are not started here")
        run = simulate(file, scheduler=scheduler or None, seed=seed)
        return {
            "complete": run.complete,
            "scheduler": found.scheduler,
            "numbers": dict(run.summary),
            "notes": _some(run.notes),
            "tasks": _rows(run.tasks),
        }


def _some(items: Sequence[str]) -> dict[str, Any]:
    return {"count": len(items), "first": list(items[:MOST_ROWS])}


def _rows(table: ColumnTable) -> Mapping[str, Any]:
    return {
        "count": len(table),
        "first": [dict(zip(table.columns, row, strict=True)) for row in table.rows[:MOST_ROWS]],
    }
