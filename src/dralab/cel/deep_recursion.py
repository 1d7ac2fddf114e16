"""Recursion without the interpreter's stack: a step yields the steps it needs.

    def height(tree: Tree) -> Step[int]:
        below = []
        for child in tree.children:
            below.append((yield height(child)))
        return 1 + max(below, default=0)

    run(height(tree))

Every pass over a syntax tree is written so, and none of them has a depth at which it breaks.
"""

from collections.abc import Generator
from typing import Any, TypeVar

T = TypeVar("T")
Step = Generator["Step[Any]", Any, T]


def run(step: Step[T]) -> T:
    """Return what a step returns, after all the steps it asked for."""
    waiting: list[Step[Any]] = [step]
    value: Any = None
    while True:
        try:
            waiting.append(waiting[-1].send(value))
            value = None
        except StopIteration as stop:
            waiting.pop()
            value = stop.value
            if not waiting:
                result: T = value
                return result
