"""Progress bars for slow work: shown after five seconds, and removed when the work is done.

They go to stderr, but in a notebook to stdout: there, even the blanks left behind on stderr look
like an error.
"""

import os
import sys

from tqdm import tqdm


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
    file = sys.stdout if hasattr(shell, "kernel") else sys.stderr
    return tqdm(steps, delay=5, leave=False, disable=not is_wanted(shown), file=file, **options)
