"""`dralab validate`: report each document as valid, legacy or invalid, and why."""

import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from dralab.cli import generations
from dralab.cli._components import GATES, RELEASE, features_of, release_of
from dralab.cli._options import FOLDER, arg, opt, options
from dralab.cli._output import echo_json, formats, yaml_texts
from dralab.cli._own_generation import api_option
from dralab.cli._terminal import echo
from dralab.cli.generations import InputDocument
from dralab.prototypes.findings import Finding

MOST_SHOWN = 12
COLOURS = {"refused": "red", "dropped": "red", "warned": "yellow", "unknown": "yellow"}


@click.command(
    epilog="Example: dralab validate -f pools.yaml --api evolution --write normalized/",
)
@options
def validate(
    *,
    files: tuple[str, ...] = generations.FILES,
    more: tuple[str, ...] = arg(metavar="[FILE]..."),
    api: str | None = api_option(generations.READABLE),
    repair: Path | None = opt(
        "Write every document that can be repaired, in the generation's final form, to this "
        "directory.",
        FOLDER,
        flags="--write",
    ),
    kubernetes_version: str = RELEASE,
    feature_gates: str = GATES,
    output: str = formats("table", "json"),
    strict: bool = opt("Treat legacy documents as invalid."),
) -> None:
    """Report each document as valid, legacy or invalid, with the field and the reason.

    With --kubernetes-version, report what a server of that release would refuse, drop or warn of:
    versions that it does not serve, fields that it does not have or whose gate is off, and all that
    its validation finds. No server runs.

    Exit code 0: no document is invalid; 1: some are; 2: the input cannot be read.
    """
    names = (*files, *more)
    if not names:
        raise click.UsageError("nothing to validate: give files with -f")
    if kubernetes_version:
        sys.exit(
            _validate_for(names, kubernetes_version, feature_gates, output=output, strict=strict)
        )
    if feature_gates:
        raise click.UsageError("--feature-gates needs --kubernetes-version")
    api = generations.chosen(
        (item for _, item, _ in generations.raw(names)), api, readable=generations.READABLE
    )
    if api == "v1":
        sys.exit(_validate_today(names, output))
    read = generations.read(names, api)
    if output == "json":
        echo_json([_entry(each) for each in read])
    else:
        for each in read:
            _print(each)
        counts = Counter(each.report.state for each in read)
        echo(", ".join(f"{counts[state]} {state}" for state in ("valid", "legacy", "invalid")))
    if repair is not None:
        _repair(read, repair, api)
    refused = {"invalid", "legacy"} if strict else {"invalid"}
    sys.exit(1 if any(each.report.state in refused for each in read) else 0)


def _validate_today(names: Sequence[str], output: str) -> int:
    from dralab.api.manifests import load
    from dralab.api.resource.files import ResourceCheck, add_pool_problems
    from dralab.kernel.clock import WallClock, rfc3339

    found = load(names, [ResourceCheck(now=rfc3339(WallClock().now()))])
    add_pool_problems(found)
    if output == "json":
        entries = [{"message": str(problem)} for problem in found.problems]
        echo_json(entries)
    else:
        for problem in found.problems:
            echo(str(problem))
        echo(f"{len(found.objects)} valid, {len(found.problems)} problems")
    return 1 if found.problems else 0


def _validate_for(names: Sequence[str], text: str, gates: str, *, output: str, strict: bool) -> int:
    from dralab.api.manifests import load
    from dralab.apiserver.release_verdicts import ReleaseJudge

    release = release_of(text)
    found = load(names)
    judge = ReleaseJudge(release, features_of(gates, release, of_lab=False) if gates else None)
    verdicts = judge.judged([item.object for item in found.objects])
    told = [
        (item, verdict)
        for item, several in zip(found.objects, verdicts, strict=True)
        for verdict in several
    ]
    counts: Counter[str] = Counter(verdict.sort for _, verdict in told)
    if output == "json":
        echo_json(
            [
                {
                    "file": item.origin.file,
                    "line": item.origin.line,
                    "object": f"{item.kind} {item.name}",
                    "verdict": verdict.sort,
                    "field": verdict.field,
                    "message": verdict.message,
                }
                for item, verdict in told
            ]
        )
    else:
        for problem in found.problems:
            echo(str(problem))
        for item, verdict in told:
            echo(f"{item.origin.file}:{item.origin.line}: {item.kind} {item.name}: ", nl=False)
            echo(verdict.sort, colour=COLOURS[verdict.sort], nl=False)
            echo(f": {verdict}")
        shown = ", ".join(f"{counts[sort]} {sort}" for sort in COLOURS)
        echo(f"{len(found.objects)} objects for Kubernetes {release}: {shown}")
    refused = {"refused", "dropped", *(("warned", "unknown") if strict else ())}
    return 1 if found.problems or any(counts[sort] for sort in refused) else 0


def _entry(each: InputDocument) -> dict[str, Any]:
    return {
        "file": each.origin.file,
        "line": each.origin.line,
        "document": each.origin.document,
        "object": each.title,
        "state": each.report.state,
        "findings": [
            {"level": f.level, "field": f.field, "line": each.line(f), "message": f.message}
            for f in each.report.findings
        ],
    }


def _print(each: InputDocument) -> None:
    colour = {"valid": "green", "legacy": "yellow", "invalid": "red"}[each.report.state]
    echo(f"{each.origin.file}:{each.origin.line}: {each.title}: ", nl=False)
    echo(each.report.state, colour=colour)
    shown = _grouped(each.report.findings)
    for finding, count in shown[:MOST_SHOWN]:
        again = f" (and {count - 1} more of this kind)" if count > 1 else ""
        echo(f"  {each.line(finding)}: {finding.level}: {finding}{again}")
    if len(shown) > MOST_SHOWN:
        echo(f"  … {len(shown) - MOST_SHOWN} more kinds of findings: see -o json")


def _grouped(findings: Sequence[Finding]) -> list[tuple[Finding, int]]:
    """Return the first finding of each kind and their number: documents of a fleet are similar."""
    kinds: dict[tuple[str, str, object], list[Finding]] = {}
    for finding in findings:
        pattern = "".join(c for c in finding.field if not c.isdigit())
        about = finding.rule or finding.message
        kinds.setdefault((finding.level, pattern, about), []).append(finding)
    order = {"invalid": 0, "legacy": 1, "warning": 2}
    rows = [(several[0], len(several)) for several in kinds.values()]
    return sorted(rows, key=lambda row: order[row[0].level])


def _repair(read: Sequence[InputDocument], folder: Path, api: str) -> None:
    from dralab.prototypes.repair import repaired

    folder.mkdir(parents=True, exist_ok=True)
    by_file: dict[str, list[dict[str, Any]]] = {}
    for each in read:
        objects, left = repaired(each.item, each.report, api)
        by_file.setdefault(Path(each.origin.file).name, []).extend(objects)
        for finding in left:
            echo(f"not repaired: {each.title}: {finding}", err=True)
    for name, objects in by_file.items():
        target = folder / name
        target.write_text("".join(yaml_texts(objects)))
        echo(f"wrote {target}: {len(objects)} objects", err=True)
