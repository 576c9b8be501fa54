"""Progress of what takes long: after five seconds, on stderr, and gone when it is done.

In a notebook it is on stdout: what is left on stderr there, if only blanks, looks like an error.
"""

import os
import sys

from tqdm import tqdm


def wanted(asked: bool | None = None) -> bool:
    """Whether to show it: as asked, or else unless KVVIZ_PROGRESS is 0."""
    return os.environ.get("KVVIZ_PROGRESS") != "0" if asked is None else asked


def bar(steps=None, *, shown: bool | None = None, **looks) -> tqdm:
    """A bar over `steps`, or one to be updated by hand; `looks` are those of tqdm."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    file = sys.stdout if hasattr(shell, "kernel") else sys.stderr
    return tqdm(steps, delay=5, leave=False, disable=not wanted(shown), file=file, **looks)
