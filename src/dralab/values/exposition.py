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
    seen, head = 0, f"{labels}," if labels else ""
    for limit, count in zip([*map(number_text, bounds), "+Inf"], counts, strict=True):
        seen += count
        yield f'{name}_bucket{{{head}le="{limit}"}} {seen}'
    braces = f"{{{labels}}}" if labels else ""
    yield f"{name}_sum{braces} {total}"
    yield f"{name}_count{braces} {seen}"


def number_text(number: float) -> str:
    """Return a bound as Go writes it, which is part of the series' name.

    >>> number_text(1.0), number_text(1_000_000.0), number_text(0.005)
    ('1', '1e+06', '0.005')
    """
    return f"{number:g}"
