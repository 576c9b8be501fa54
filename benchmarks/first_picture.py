"""How long notebook 00 takes from Run All to its first picture, in a fresh kernel."""

import time
from statistics import median

from nbclient import NotebookClient

from tools.notebooks import ROOT, read

NOTEBOOK = ROOT / "notebooks" / "00-start-here.ipynb"
LIMIT = 8.0  # seconds


def seconds() -> float:
    """From Run All to the first picture; the kernel is up and the model is on this machine."""
    nb = read(NOTEBOOK)
    client = NotebookClient(nb, kernel_name="python3", timeout=300)
    with client.setup_kernel():
        start = time.perf_counter()
        for number, cell in enumerate(nb.cells):
            if cell.cell_type == "code":
                client.execute_cell(cell, number)
                if any("image/png" in output.get("data", {}) for output in cell.outputs):
                    return time.perf_counter() - start
    raise ValueError(f"{NOTEBOOK.name} shows no picture")


def main(rounds: int = 5) -> bool:
    taken = sorted(seconds() for _ in range(rounds))
    print(f"first picture after {median(taken):.1f} s, slowest {taken[-1]:.1f} s; at most {LIMIT}")
    return median(taken) <= LIMIT
