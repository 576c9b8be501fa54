"""Run the notebooks top to bottom, each in a fresh kernel, and write them in canonical form.

python -m tools.notebooks [PATH ...]
"""

import os
import sys
import time
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode

ROOT = Path(__file__).resolve().parent.parent
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
KEPT_METADATA = ("tags", "jupyter", "slideshow")
WIDGET_VIEW = "application/vnd.jupyter.widget-view+json"


def notebooks() -> list[Path]:
    """Every notebook of the project in reading order, with the solutions at the end."""
    found = (ROOT / "notebooks").rglob("*.ipynb")
    return sorted(
        (path for path in found if ".ipynb_checkpoints" not in path.parts),
        key=lambda path: (len(path.parts), path),
    )


def read(path: Path) -> NotebookNode:
    """The notebook at `path`; raises the error of `nbformat` if it isn't valid."""
    nb = nbformat.read(path, as_version=4)
    nbformat.validate(nb)
    return nb


def sources(path: Path) -> dict[str, str]:
    """Each cell's source by its id."""
    return {cell.id: cell.source for cell in read(path).cells}


# --- canonical form -------------------------------------------------------------------------------


def canonical(nb: NotebookNode) -> NotebookNode:
    """A copy without anything that changes from run to run or from editor to editor."""
    cells = []
    for cell in nb.cells:
        kept = {k: cell.metadata[k] for k in KEPT_METADATA if k in cell.metadata}
        cell = NotebookNode(cell, metadata=NotebookNode(kept))
        if cell.cell_type == "code":
            cell.outputs = [out for out in map(_canonical_output, cell.outputs) if out is not None]
        cells.append(cell)
    metadata = {"kernelspec": dict(KERNEL), "language_info": {"name": "python"}}
    return nbformat.from_dict(
        {"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5}
    )


def _canonical_output(output: NotebookNode) -> NotebookNode | None:
    if "data" not in output:
        return output
    data = {mime: value for mime, value in output.data.items() if mime != WIDGET_VIEW}
    return NotebookNode(output, data=data) if data else None


def text_of(nb: NotebookNode) -> str:
    """The notebook as it is written to disk: sorted keys, indent 1, a newline at the end."""
    return nbformat.writes(nb, version=4) + "\n"


def execute(path: Path) -> NotebookNode:
    """The notebook after a run in a fresh kernel; the file isn't changed."""
    nb = read(path)
    for cell in nb.cells:
        if cell.cell_type == "code":
            cell.execution_count, cell.outputs = None, []
    NotebookClient(
        nb,
        kernel_name="python3",
        extra_arguments=["--log-level=ERROR"],
        timeout=600,
        resources={"metadata": {"path": str(path.parent)}},
        store_widget_state=False,
        coalesce_streams=True,
        record_timing=False,
    ).execute()
    return canonical(nb)


def refresh(path: Path) -> str:
    """Run and rewrite one notebook, or leave it alone if it fails; return what went wrong."""
    try:
        text = text_of(execute(path))
    except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
        return str(error)
    path.write_text(text, encoding="utf-8")
    return ""


def main(names: list[str]) -> int:
    """Refresh these notebooks, or all of them; return how many failed."""
    os.environ["KVVIZ_PROGRESS"] = "0"
    failed = 0
    for path in [Path(name).resolve() for name in names] or notebooks():
        print(f"{path.name} ...", end=" ", flush=True)
        start = time.monotonic()
        fault = refresh(path)
        failed += bool(fault)
        print(f"failed, left as it was\n{fault}" if fault else f"{time.monotonic() - start:.0f} s")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(sys.argv[1:]), 1))
