"""Run tests of Kubernetes' end-to-end suite against a cluster of dralab.

    python tools/e2e_suite.py FOLDER KUBECONFIG FILE|REGEX [PROCESSES] [-- OPTION ...]

FOLDER has `e2e.test` and `ginkgo`, which `tools/build_clients.py FOLDER e2e.test ginkgo agnhost`
builds. FILE has the full name of a test on each line; a REGEX selects by name. So many PROCESSES
run tests at once (default 2); those marked [Serial] follow alone. OPTIONs go to the suite, such as
`-num-nodes=0` for a cluster without nodes. One line is printed for each test that did not pass; the
results are kept as FOLDER/results.json. The exit code is 1 if a test failed.
"""

import json
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

OPTIONS = (
    "-provider=skeleton", "-num-nodes=-1", "-allowed-not-ready-nodes=-1", "-delete-namespace=true",
)  # fmt: skip
SHOWN = 300  # characters of a failure


def main(arguments: Sequence[str]) -> int:
    """Run the tests; print what failed and how many passed."""
    given, more = list(arguments), list[str]()
    if "--" in given:
        at = given.index("--")
        given, more = given[:at], given[at + 1 :]
    if not 3 <= len(given) <= 4:
        print(__doc__, file=sys.stderr)
        return 2
    place, kubeconfig, chosen, *count = given
    folder = Path(place).resolve()
    report = folder / "results.json"
    report.unlink(missing_ok=True)
    command = [
        folder / "ginkgo", f"--procs={count[0] if count else 2}", "--no-color", "--timeout=3h",
        f"--focus={focus(chosen)}", f"--json-report={report.name}", f"--output-dir={folder}",
        folder / "e2e.test", "--", f"-kubeconfig={Path(kubeconfig).resolve()}", *OPTIONS,
        *more,
    ]  # fmt: skip
    with (folder / "e2e.log").open("w") as log:
        subprocess.run(list(map(str, command)), stdout=log, stderr=log, check=False)
    if not report.exists():
        print(f"the suite has not run: see {folder / 'e2e.log'}", file=sys.stderr)
        return 1
    states: Counter[str] = Counter()
    for state, name, why in results(json.loads(report.read_text())):
        states[state] += 1
        if state != "passed":
            print(state, name, why, sep=" | ")
    print(dict(states))
    return 1 if set(states) - {"passed", "skipped"} or not states else 0


def focus(chosen: str) -> str:
    """Return the expression that selects tests: the one given, or of the names in a file.

    >>> focus("Conformance")
    'Conformance'
    """
    if not Path(chosen).is_file():
        return chosen
    names = [line.strip() for line in Path(chosen).read_text().splitlines() if line.strip()]
    return f"({'|'.join(map(re.escape, names))})$"


def results(report: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, str]]:
    """Return state, name and reason of each test that was chosen, and of what failed before."""
    found = []
    for spec in report[0]["SpecReports"]:
        above = spec["ContainerHierarchyTexts"] or ()
        state, name = spec["State"], " ".join([*above, spec["LeafNodeText"]])
        why = (spec.get("Failure") or {}).get("Message", "")
        if spec["LeafNodeType"] == "It" and (state != "skipped" or why):
            found.append((state, name, " ".join(why.split())[:SHOWN]))
        elif spec["LeafNodeType"] != "It" and state not in {"passed", "skipped"}:
            found.append((state, spec["LeafNodeType"], " ".join(why.split())[:SHOWN]))
    return found


if __name__ == "__main__":
    from usage import print_if_asked

    print_if_asked(__doc__)
    sys.exit(main(sys.argv[1:]))
