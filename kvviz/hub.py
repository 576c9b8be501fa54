"""Names of models that aren't folders of this machine: the hub's, if it can be reached."""

from __future__ import annotations

from pathlib import Path

PATIENCE = 10  # seconds for the hub's first answer; without a network, no answer comes at once


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

    The library itself would try six times, for 23 seconds.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import get_session

    try:
        get_session().head(constants.ENDPOINT, timeout=PATIENCE)
    except Exception:  # no network, or offline mode; their types change with the library's client
        return False
    return True


def explain(reason: str, *, asked: bool) -> str:
    """Why a name that is no folder wasn't found: what the hub said, or that it wasn't asked.

    >>> explain("", asked=False)
    "the hub can't be reached, and no copy from it is kept on this machine"
    """
    if asked:
        return f"the hub says: {reason}"
    return "the hub can't be reached, and no copy from it is kept on this machine"
