"""Progress of what takes long: on stderr, after five seconds, and gone when it is done."""

import os

from tqdm import tqdm


def wanted(asked: bool | None = None) -> bool:
    """Whether to show it: as asked, or else unless KVVIZ_PROGRESS is 0."""
    return os.environ.get("KVVIZ_PROGRESS") != "0" if asked is None else asked


def bar(steps=None, *, shown: bool | None = None, **looks) -> tqdm:
    """A bar over `steps`, or one to be updated by hand; `looks` are those of tqdm."""
    return tqdm(steps, delay=5, leave=False, disable=not wanted(shown), **looks)
