"""Progress of slow work: shown after five seconds, and removed when the work is done.

On stderr, as usual. In a notebook, in a corner of the page instead: what is printed there stays in
the cell's output and in its file, and so do the blanks that should cover it.
"""

import io
import os
import sys

from tqdm import tqdm

DELAY = 5  # seconds
COUNTED = "{desc}: {n_fmt}{unit}, {elapsed}"
OUT_OF = "{desc}: {n_fmt}/{total_fmt}{unit}, {elapsed}, {remaining} left"


def is_wanted(asked: bool | None = None) -> bool:
    """Whether to show progress: `asked` if given, or else yes, unless KVVIZ_PROGRESS is 0.

    >>> is_wanted(asked=False)
    False
    """
    return os.environ.get("KVVIZ_PROGRESS") != "0" if asked is None else asked


def bar(steps=None, *, shown: bool | None = None, **options) -> tqdm:
    """A progress bar over `steps` or, without them, one that you update yourself.

    Args:
        shown: see `is_wanted`.
        options: passed to tqdm, such as `desc` and `unit`.

    >>> sum(bar([1, 2, 3], desc="adding"))
    6
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    kind, file = (NotedBar, io.StringIO()) if hasattr(shell, "kernel") else (tqdm, sys.stderr)
    options = {"desc": "done", "unit": "", "delay": DELAY, "leave": False, "file": file} | options
    of = options.get("total", len(steps) if hasattr(steps, "__len__") else None)
    looks = COUNTED if of is None else OUT_OF
    return kind(steps, disable=not is_wanted(shown), bar_format=looks, **options)


class NotedBar(tqdm):
    """A bar that is shown as a note on the page; nothing is written to its file but blanks."""

    _note = None

    def display(self, msg=None, pos=None):
        if self._note is None:
            from kvviz.page_note import PageNote  # widgets take a while to load

            self._note = PageNote()
        self._note.text = str(self) if msg is None else msg

    def close(self):
        super().close()
        if self._note is not None:
            self._note.text = ""
            self._note.close()
            self._note = None
