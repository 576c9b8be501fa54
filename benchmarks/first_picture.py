"""How long notebook 00 takes from Run All to its first picture, in a fresh kernel, and what memory.

The model's weights are mapped into memory from one file, so all kernels share them.
"""

import time
from statistics import median

import psutil
from nbclient import NotebookClient

from tools.notebooks import ROOT, read

NOTEBOOK = ROOT / "notebooks" / "00-start-here.ipynb"
LIMIT = 8.0  # seconds
MEMORY = 500  # MB that a kernel has to itself


def measure() -> tuple[float, float]:
    """Seconds to the first picture, and MB of its own; the kernel is up, the model is kept here."""
    nb = read(NOTEBOOK)
    client = NotebookClient(nb, kernel_name="python3", timeout=300)
    with client.setup_kernel():
        start = time.perf_counter()
        for number, cell in enumerate(nb.cells):
            if cell.cell_type == "code":
                client.execute_cell(cell, number)
                if any("image/png" in output.get("data", {}) for output in cell.outputs):
                    return time.perf_counter() - start, own_memory(client.km.provisioner.pid)
    raise ValueError(f"{NOTEBOOK.name} shows no picture")


def own_memory(pid: int) -> float:
    """MB that a process shares with no other; where shared memory isn't told apart, all it has."""
    used = psutil.Process(pid).memory_info()
    return (used.rss - getattr(used, "shared", 0)) / 1e6


def main(rounds: int = 5) -> bool:
    seconds, memory = zip(*(measure() for _ in range(rounds)), strict=True)
    print(f"first picture after {median(seconds):.1f} s, slowest {max(seconds):.1f} s; ", end="")
    print(f"at most {LIMIT}\nits kernel's own memory: {max(memory):.0f} MB, at most {MEMORY}")
    return median(seconds) <= LIMIT and max(memory) <= MEMORY
