"""Runs the notebooks of docs/notebooks with the checkout, and keeps their outputs in them.

python tools/notebooks.py [NAME ...]   run them and write them anew
python tools/notebooks.py --check      only compare the texts; exit code 1 where they differ
"""

import argparse
import sys
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parents[1] / "docs" / "notebooks"


def executed(path: Path) -> Any:
    """Return a notebook with the outputs of a new run of all cells."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(path, as_version=4)
    NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(FOLDER)}}
    ).execute()
    notebook.metadata = {"language_info": {"name": "python"}}
    for number, cell in enumerate(notebook.cells):
        cell.id, cell.metadata = f"cell-{number}", {}
        if "outputs" in cell:
            cell.outputs = _joined(cell.outputs)
    return notebook


def _joined(outputs: list[Any]) -> list[Any]:
    """Return outputs without progress, and with what is printed as one."""
    kept: list[Any] = []
    for each in outputs:
        if each.get("name") == "stderr":
            continue
        if kept and each.get("name") == kept[-1].get("name") == "stdout":
            kept[-1].text += each.text
        else:
            kept.append(each)
    return kept


def texts(notebook: Any) -> list[str]:
    """Return what the cells print and answer, without pictures."""
    found = []
    for cell in notebook.cells:
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" not in data:
                found.append(output.get("text") or "".join(data.get("text/plain", "")))
    return found


def main(arguments: list[str] | None = None) -> int:
    """Run them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    parser.add_argument("names", nargs="*")
    given = parser.parse_args(arguments)
    import nbformat

    wrong = 0
    for path in sorted(FOLDER.glob("*.ipynb")):
        if given.names and path.stem not in given.names:
            continue
        before = nbformat.read(path, as_version=4)
        notebook = executed(path)
        if not given.check:
            nbformat.write(notebook, path)
        elif texts(before) != texts(notebook):
            wrong += 1
            print(f"{path.name}: other outputs; run python tools/notebooks.py", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    raise SystemExit(main())
