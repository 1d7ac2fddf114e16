"""The result of a bench as text, markdown, JUnit, JSON and a badge."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import escape

import orjson

from dralab import __version__
from dralab.drivercheck.catalog import GROUPS, Level
from dralab.drivercheck.runner import CheckResult, Outcome, Report

MARKS: Final = {
    Outcome.PASSED: "✓",
    Outcome.FAILED: "✗",
    Outcome.SKIPPED: "-",
    Outcome.BLOCKED: "!",
}
TOLD: Final = (Outcome.FAILED, Outcome.BLOCKED)
KUBELET: Final = "1.36"
# What tells claims apart in texts of one cause.
VARYING: Final = re.compile(
    r"\bclaim-\d+\b|\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"
    r"|-[bcdfghjklmnpqrstvwxz2456789]{5}\b"
)


def verdict(report: Report) -> str:
    """Return the result in a line: how many MUSTs and SHOULDs are kept.

    Checks that don't apply are not counted.
    """
    parts = []
    for level in Level:
        passed = report.count(Outcome.PASSED, level)
        every = passed + sum(report.count(outcome, level) for outcome in TOLD)
        parts.append(f"{passed} of {every} {level}")
    skipped = report.count(Outcome.SKIPPED)
    word = "conformant" if report.conformant else "not conformant"
    return f"{word}: {', '.join(parts)}, {skipped} skipped"


def matrix(report: Report) -> list[list[str]]:
    """Return a table with a row for each group; the first row has the headings."""
    rows = [["GROUP", "MUST", "SHOULD", "SKIPPED", "CHECKS"]]
    for group in GROUPS:
        own = [each for each in report.results if each.check.group == group]
        if not own:
            continue
        cells = [group]
        for level in Level:
            counted = [
                each
                for each in own
                if each.check.level is level and each.outcome is not Outcome.SKIPPED
            ]
            passed = sum(each.outcome is Outcome.PASSED for each in counted)
            cells.append(f"{passed}/{len(counted)}")
        cells.append(str(sum(each.outcome is Outcome.SKIPPED for each in own)))
        cells.append("".join(MARKS[each.outcome] for each in own))
        rows.append(cells)
    return rows


def failure_report(result: CheckResult) -> list[str]:
    """Return the report of a failed check: the rule, its source, the transcript."""
    check = result.check
    lines = [
        f"{MARKS[result.outcome]} {check.id} ({check.level}): {check.sentence}",
        f"  source: {check.source}",
        *(f"  {line}" for line in result.text.splitlines()),
    ]
    if result.transcript:
        lines += ["  transcript:", *(f"    {line}" for line in result.transcript)]
    return lines


def failures(results: Iterable[CheckResult]) -> list[str]:
    """Return the reports of failed checks; only the first of one cause has all details."""
    seen: dict[str, str] = {}
    lines: list[str] = []
    for result in results:
        cause = VARYING.sub("…", result.text)
        first = seen.setdefault(cause, result.check.id)
        if first == result.check.id:
            lines += [*failure_report(result), ""]
        else:
            mark, check = MARKS[result.outcome], result.check
            lines += [f"{mark} {check.id} ({check.level}): {check.sentence}"]
            lines += [f"  the same as in {first}", ""]
    return lines


def as_json(report: Report) -> bytes:
    """Return the report as a JSON document."""
    document: dict[str, Any] = {
        "dralab": __version__,
        "kubelet": KUBELET,
        "target": report.target,
        "driver": report.driver,
        "conformant": report.conformant,
        "seconds": round(report.seconds, 3),
        "counts": {str(outcome): report.count(outcome) for outcome in Outcome},
        "checks": [
            {
                "id": each.check.id,
                "group": each.check.group,
                "level": each.check.level,
                "sentence": each.check.sentence,
                "source": each.check.source,
                "outcome": each.outcome,
                "text": each.text,
                "seconds": round(each.seconds, 3),
                "transcript": list(each.transcript),
            }
            for each in report.results
        ],
    }
    return orjson.dumps(document, option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)


def as_junit(report: Report) -> str:
    """Return the report as JUnit XML: a suite for each group.

    A SHOULD that is not kept is a skipped test with the reason: it doesn't fail a build.
    """
    root = ET.Element("testsuites", name="DRA driver conformance")
    for group in GROUPS:
        own = [each for each in report.results if each.check.group == group]
        if not own:
            continue
        failures = [e for e in own if e.outcome in TOLD and e.check.level is Level.MUST]
        passed = [e for e in own if e.outcome is Outcome.PASSED]
        suite = ET.SubElement(
            root,
            "testsuite",
            name=group,
            tests=str(len(own)),
            failures=str(len(failures)),
            skipped=str(len(own) - len(failures) - len(passed)),
        )
        for each in own:
            case = ET.SubElement(
                suite,
                "testcase",
                classname=f"{report.driver or 'driver'}.{group}",
                name=each.check.id,
                time=f"{each.seconds:.3f}",
            )
            text = _printable("\n".join(failure_report(each)))
            if each in failures:
                ET.SubElement(case, "failure", message=_printable(each.text)).text = text
            elif each.outcome is not Outcome.PASSED:
                prefix = "" if each.outcome is Outcome.SKIPPED else "SHOULD: "
                ET.SubElement(case, "skipped", message=prefix + _printable(each.text))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def as_markdown(report: Report) -> str:
    """Return the report as a markdown page that a vendor can publish."""
    name = report.driver or report.target
    lines = [
        f"# Conformance of {name}",
        "",
        f"{verdict(report)}. Checked by `dralab driver check` (dralab {__version__}, the contract "
        f"of Kubernetes {KUBELET}) in {report.seconds:.0f} s.",
        "",
        f"    {report.target}",
        "",
        *_table(matrix(report)),
    ]
    failed = [each for each in report.results if each.outcome in TOLD]
    if failed:
        lines += ["", "## Rules that are not kept", ""]
        for each in failed:
            lines += [
                f"### {each.check.id} ({each.check.level})",
                "",
                each.check.sentence,
                "",
                f"Source: {each.check.source}",
                "",
                "```",
                *each.text.splitlines(),
                *each.transcript,
                "```",
                "",
            ]
    lines += ["", "## All checks", ""]
    rows = [["", "check", "level", "rule", "remark"]]
    for each in report.results:
        remark = each.text.splitlines()[0] if each.text else ""
        row = [MARKS[each.outcome], f"`{each.check.id}`", str(each.check.level)]
        rows.append([*row, each.check.sentence, remark])
    return "\n".join([*lines, *_table(rows)]) + "\n"


def as_badge(report: Report) -> str:
    """Return an SVG badge: how many of the rules that apply are kept."""
    passed = report.count(Outcome.PASSED)
    every = passed + sum(report.count(outcome) for outcome in TOLD)
    color = "#3a7d44" if report.conformant else "#a4262c"
    left, right = "DRA conformance", f"{passed}/{every}"
    widths = [7 * len(left) + 12, 7 * len(right) + 12]
    total = sum(widths)
    title = escape(f"{report.driver or 'driver'}: {verdict(report)}")
    font = 'font-family="Verdana,sans-serif" font-size="11" fill="#fff" text-anchor="middle"'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{total}" height="20" role="img">'
        f"<title>{title}</title>"
        f'<rect width="{widths[0]}" height="20" fill="#444"/>'
        f'<rect x="{widths[0]}" width="{widths[1]}" height="20" fill="{color}"/>'
        f'<text x="{widths[0] / 2:g}" y="14" {font}>{left}</text>'
        f'<text x="{widths[0] + widths[1] / 2:g}" y="14" {font}>{right}</text>'
        "</svg>\n"
    )


# How a report is written to a file, by its ending.
WRITERS: Final[Mapping[str, Callable[[Report], bytes]]] = {
    ".json": as_json,
    ".xml": lambda report: as_junit(report).encode(),
    ".md": lambda report: as_markdown(report).encode(),
    ".svg": lambda report: as_badge(report).encode(),
}


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"

    return [line(rows[0]), line(["---"] * len(rows[0])), *map(line, rows[1:])]


def _printable(text: str) -> str:
    """Return a text without the characters that XML forbids."""
    return "".join(c if c >= " " or c in "\n\t" else "�" for c in text)
