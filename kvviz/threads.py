"""Let the threads of torch sleep while they wait, so that a step stays fast beside other work.

torch splits an operation over threads, and each of them waits until the last one is done. It waits
in a loop that keeps its core busy. If another process needs a core, the thread that all wait for
may be the one that gets none. `python -m benchmarks busy_machine` measures how much time that takes
and what these settings save. OpenMP reads them when torch is loaded, and never again.
"""

from __future__ import annotations

import os
import sys

# How long a thread stays busy before it sleeps: turns of GNU's loop (torch's wheels for Linux), and
# milliseconds for LLVM's and Intel's OpenMP (macOS, Windows and conda).
SETTINGS = {"GOMP_SPINCOUNT": "1000", "KMP_BLOCKTIME": "1"}


def let_waiting_threads_sleep() -> None:
    """Put `SETTINGS` into the environment, if torch isn't loaded yet; your own values are kept.

    OMP_WAIT_POLICY is the standard's own setting for all of this, so if you set it, nothing is
    added.

    Source: the GNU libgomp manual, GOMP_SPINCOUNT; LLVM/OpenMP runtimes, KMP_BLOCKTIME; OpenMP 5.2,
        section 21.2.7, OMP_WAIT_POLICY.

    >>> let_waiting_threads_sleep()  # importing kvviz does this
    """
    if "torch" in sys.modules or os.environ.get("OMP_WAIT_POLICY"):
        return
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
