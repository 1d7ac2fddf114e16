"""The answers of the laboratory: data with a text to print and a page for notebooks.

The values are those that `-o json` of the same command prints, under the names of Python.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class HelpAnswer:
    """A change that would help: `confirmed` ones were tried, and then it fits at once."""

    text: str
    confirmed: bool
    command: str = ""
    patch: Any = None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class ExplanationAnswer:
    """Why a pod or claim waits, or where it fits.

    `causes` are the sentences of other reasons with the number of nodes that each rules out, the
    most frequent first. `data` is all that `dralab explain -o json` prints; `str()` is its page.
    """

    name: str
    fits: bool
    node: str
    code: str
    headline: str
    causes: Sequence[tuple[str, int]]
    helps: Sequence[HelpAnswer]
    data: Mapping[str, Any] = field(repr=False)

    def __str__(self) -> str:
        return str(self.data["text"])

    def __repr__(self) -> str:
        return f"<{self.name}: {f'fits on {self.node}' if self.fits else self.headline}>"

    def _repr_html_(self) -> str:
        return f"<pre>{escape(str(self))}</pre>"


def explanation(answer: Mapping[str, Any]) -> ExplanationAnswer:
    """Return an answer of `explanation.answers` as an ExplanationAnswer."""
    helps = [
        HelpAnswer(
            text=each["text"],
            confirmed=each["fitsNow"],
            command=each.get("command", ""),
            patch=each.get("patch"),
        )
        for each in answer.get("helps") or ()
    ]
    unfit = [(each["reason"], each["nodes"]) for each in answer.get("unfit") or ()]
    return ExplanationAnswer(
        name=answer["object"],
        fits=answer["fits"],
        node=answer.get("node") or "",
        code=answer.get("code") or "",
        headline=answer.get("headline") or answer["text"].split("\n", 1)[0].rstrip(":"),
        causes=sorted(unfit, key=lambda each: -each[1]),
        helps=helps,
        data=answer,
    )


@dataclass(frozen=True, slots=True, repr=False)
class ColumnTable:
    """Rows with named columns; `to_pandas` needs pandas, which is not installed with dralab."""

    columns: Sequence[str]
    rows: Sequence[Sequence[Any]] = field(repr=False)

    def __len__(self) -> int:
        return len(self.rows)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return (dict(zip(self.columns, row, strict=True)) for row in self.rows)

    def __getitem__(self, column: str) -> list[Any]:
        """Return a column; KeyError names those that there are."""
        if column not in self.columns:
            raise KeyError(f"{column!r} is not one of {', '.join(self.columns)}")
        at = list(self.columns).index(column)
        return [row[at] for row in self.rows]

    def to_pandas(self) -> Any:
        """Return a pandas.DataFrame. ImportError: pandas is not installed."""
        import pandas as pd  # type: ignore[import-not-found,import-untyped,unused-ignore]

        return pd.DataFrame({name: self[name] for name in self.columns})

    def __repr__(self) -> str:
        of = f" of {', '.join(self.columns)}" if self.columns else ""
        return f"<{len(self)} rows{of}>"

    def _repr_html_(self) -> str:
        shown = self.rows[:SHOWN]
        body = "".join(f"<tr>{''.join(map(_cell, row))}</tr>" for row in shown)
        head = "".join(f"<th>{escape(name)}</th>" for name in self.columns)
        more = f"<p>{len(self)} rows</p>" if len(self) > SHOWN else ""
        return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{more}"


SHOWN = 20


def table(items: Sequence[Mapping[str, Any]]) -> ColumnTable:
    """Return mappings of equal keys as a table."""
    columns = list(items[0]) if items else []
    return ColumnTable(columns, [tuple(each[name] for name in columns) for each in items])


def _cell(value: Any) -> str:
    text = "" if value is None else f"{value:g}" if isinstance(value, float) else str(value)
    return f"<td>{escape(text)}</td>"


class ShownAnswer:
    """Shows itself by its text."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"<{type(self).__name__}: {self}>"


@dataclass(frozen=True, slots=True, repr=False)
class WhatIfAnswer(ShownAnswer):
    """What a change makes different: `pods` have their fate, `before`, `after` and `why`."""

    data: Mapping[str, Any] = field(repr=False)

    @property
    def nodes(self) -> tuple[int, int]:
        """How many nodes there are before and after."""
        return self.data["nodes"]["before"], self.data["nodes"]["after"]

    @property
    def pods(self) -> ColumnTable:
        """The pods that the change concerns."""
        return table(self.data["pods"])

    @property
    def moves(self) -> ColumnTable:
        """The pods that run before and after, on another node or again on theirs."""
        return table([each for each in self.data["pods"] if each["fate"] in {"moves", "restarts"}])

    @property
    def starts(self) -> ColumnTable:
        """The pods that start because of the change."""
        return table([each for each in self.data["pods"] if each["fate"] == "starts"])

    @property
    def waits(self) -> ColumnTable:
        """The pods that wait afterwards."""
        return table([each for each in self.data["pods"] if not each["after"]])

    def __str__(self) -> str:
        before, after = self.nodes
        fates = f"start: {len(self.starts)}, move: {len(self.moves)}, wait: {len(self.waits)}"
        return f"nodes: {before} before, {after} after; pods that {fates}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>{self.pods._repr_html_()}"


@dataclass(frozen=True, slots=True, repr=False)
class PlanAnswer(ShownAnswer):
    """The nodes to add: `nodes` by shape, their `price`, and no plan costs less than `least`."""

    data: Mapping[str, Any] = field(repr=False)

    @property
    def nodes(self) -> Mapping[str, int]:
        """How many nodes of each shape."""
        found: Mapping[str, int] = self.data["nodes"]
        return found

    @property
    def price(self) -> float:
        """Their total cost."""
        return float(self.data["price"])

    @property
    def least(self) -> float | None:
        """A lower bound on the cost of any plan for the same pods; None without OR-Tools."""
        found: float | None = self.data["least"]
        return found

    @property
    def served(self) -> Sequence[str]:
        """The pods that run on the new nodes."""
        found: Sequence[str] = self.data["served"]
        return found

    @property
    def waits(self) -> ColumnTable:
        """The pods that still wait."""
        return table(self.data["waiting"])

    def __str__(self) -> str:
        nodes = ", ".join(f"{count} x {name}" for name, count in self.nodes.items()) or "no node"
        fates = f"run: {len(self.served)}, wait: {len(self.waits)}"
        return f"{nodes} for {self.price:g}; pods that {fates}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>{self.waits._repr_html_()}"


@dataclass(frozen=True, slots=True, repr=False)
class MovesAnswer(ShownAnswer):
    """The pods to move so that waiting pods fit, in an order in which each step has room."""

    data: Mapping[str, Any] = field(repr=False)

    @property
    def moves(self) -> ColumnTable:
        """The moves, one after the other."""
        return table([move for each in self.data["clearings"] for move in each["moves"]])

    @property
    def served(self) -> int:
        """How many waiting pods fit after the moves."""
        return int(self.data["served"])

    @property
    def at_best(self) -> int | None:
        """How many pods any moves could serve; None without OR-Tools."""
        found: int | None = self.data["atBest"]
        return found

    @property
    def proved(self) -> bool:
        """Whether no plan has fewer moves for each of the pods when its turn comes."""
        return all(each["proved"] for each in self.data["clearings"])

    @property
    def waits(self) -> ColumnTable:
        """The pods that still wait."""
        return table(self.data["waiting"])

    def __str__(self) -> str:
        return f"moves: {len(self.moves)}, pods that fit: {self.served}, waiting: {len(self.waits)}"

    def _repr_html_(self) -> str:
        return f"<p>{escape(str(self))}</p>{self.moves._repr_html_()}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AllocationAnswer:
    """A pod or claim with the node and devices that it gets, or why it gets none."""

    name: str
    node: str
    devices: Sequence[str]
    why: str = ""
    objects: Sequence[Mapping[str, Any]] = field(default=(), repr=False)
