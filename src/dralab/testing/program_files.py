"""Loads the file of a program anew for each of its starts: a process that starts knows nothing."""

import importlib.util
import inspect
import sys
import sysconfig
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, cast

import dralab

Main = Callable[[], Awaitable[object]]
# Libraries are loaded once: what they keep is not a program's memory of the cluster.
INSTALLED: Final = frozenset({"site-packages", "dist-packages"})
OURS: Final = (sysconfig.get_path("stdlib"), str(Path(dralab.__file__).parent))


@dataclass(slots=True)
class ProgramFile:
    """`name` in a file of Python: a coroutine function without parameters."""

    path: Path
    name: str
    _own: set[str] = field(default_factory=set)

    def load(self) -> Main:
        """Load the file, and what it imports of its author's, as a new process would."""
        self.forget()
        _forget_handlers()
        module_name = f"dralab_program_{self.path.stem}"
        spec = importlib.util.spec_from_file_location(module_name, self.path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{self.path} is not a Python file")
        module = importlib.util.module_from_spec(spec)
        with _noting_imports(self._own):
            sys.modules[module_name] = module
            spec.loader.exec_module(module)
        return cast("Main", getattr(module, self.name))

    def forget(self) -> None:
        """Have the next start import its author's modules anew."""
        for name in self._own:
            sys.modules.pop(name, None)
        self._own.clear()


@contextmanager
def importing_from(folder: Path) -> Iterator[None]:
    """Have modules of a folder found, and forget those: another folder may have the same names."""
    own: set[str] = set()
    sys.path.insert(0, str(folder))
    try:
        with _noting_imports(own):
            yield
    finally:
        sys.path.remove(str(folder))
        for name in own:
            file = getattr(sys.modules.get(name), "__file__", None) or ""
            if Path(file).is_relative_to(folder):
                del sys.modules[name]


@contextmanager
def _noting_imports(own: set[str]) -> Iterator[None]:
    """Note the modules that are imported, but for libraries: those stay."""
    before = set(sys.modules)
    try:
        yield
    finally:
        for name in set(sys.modules) - before:
            file = getattr(sys.modules[name], "__file__", None)
            if file is not None and not _is_library(file):
                own.add(name)


def _is_library(file: str) -> bool:
    return file.startswith(OURS) or bool(INSTALLED.intersection(Path(file).parts))


def is_main(found: Any) -> bool:
    """Return whether something is the main function of a program on asyncio."""
    return inspect.iscoroutinefunction(found)


def _forget_handlers() -> None:
    """Have kopf forget the handlers of the last start: loading a file registers them."""
    kopf = sys.modules.get("kopf")
    if kopf is not None:
        kopf.set_default_registry(None)
