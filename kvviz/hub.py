"""Names of models that aren't folders of this machine: the hub's, if it can be reached."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

PATIENCE = 2  # seconds for the hub's first answer, whatever is wrong with the network


def is_name(name) -> bool:
    """Whether `name` can be a model's name on the hub, rather than a folder of this machine.

    >>> is_name("Qwen/Qwen3-0.6B"), is_name("/wrong/folder"), is_name("./folder")
    (True, False, False)
    """
    from huggingface_hub.utils import HFValidationError, validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError:
        return False
    return not isinstance(name, Path)


def is_reachable() -> bool:
    """Whether the hub answers, asked once and through the library's own connection.

    The library itself would try six times, for 23 seconds. The limit for a single address doesn't
    cover a name that isn't resolved, nor several addresses in turn: so the asking has a thread.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    answered = threading.Event()

    def ask():
        with contextlib.suppress(Exception):  # no network, or offline mode
            get_session().head(constants.ENDPOINT, timeout=PATIENCE)
            answered.set()

    asking = threading.Thread(target=ask, daemon=True)
    asking.start()
    asking.join(PATIENCE)
    return answered.is_set()


@contextlib.contextmanager
def asking(asked: bool):
    """Unless the hub is asked, the library sends nothing inside the block.

    It would ask the hub for a list of its own even where every file is at hand, and wait for it.
    """
    from huggingface_hub import constants

    before = constants.HF_HUB_OFFLINE
    constants.HF_HUB_OFFLINE = before or not asked
    try:
        yield
    finally:
        constants.HF_HUB_OFFLINE = before


def explain(reason: str, *, asked: bool) -> str:
    """Why a name that is no folder wasn't found: what the hub said, or that it wasn't asked.

    >>> explain("", asked=False)
    "the hub can't be reached, and no copy from it is kept on this machine"
    """
    if asked:
        return f"the hub says: {reason}"
    return "the hub can't be reached, and no copy from it is kept on this machine"
