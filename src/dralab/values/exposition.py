"""Prometheus' text format: labels, and the lines of a histogram."""

from collections.abc import Iterable, Iterator, Sequence


def labels_text(labels: Iterable[tuple[str, str]]) -> str:
    """Return labels as they stand between the braces.

    >>> labels_text([("verb", "GET"), ("code", "200")])
    'verb="GET",code="200"'
    """

    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return ",".join(f'{name}="{escaped(value)}"' for name, value in labels)


def histogram_lines(
    name: str, labels: str, bounds: Sequence[float], counts: Sequence[int], total: float
) -> Iterator[str]:
    """Yield the lines of one histogram; `counts` has one more entry than `bounds`."""
    seen = 0
    for limit, count in zip([*map(str, bounds), "+Inf"], counts, strict=True):
        seen += count
        yield f'{name}_bucket{{{labels},le="{limit}"}} {seen}'
    yield f"{name}_sum{{{labels}}} {total}"
    yield f"{name}_count{{{labels}}} {seen}"
