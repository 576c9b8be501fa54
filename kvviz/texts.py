"""Texts that come with the course, so that a loss is measured on the same words everywhere."""

from importlib.resources import files

_NAMES = ("lighthouse",)


def load_text(name: str = "lighthouse") -> str:
    """A short story, a little over 600 tokens of the course's default model.

    `lighthouse` was written for this course and is under its license, so no model has seen it
    in training.

    Raises:
        ValueError: there's no text of this name.

    >>> kv.load_text()[:32]
    'The lighthouse at Carrow Point h'
    """
    if name not in _NAMES:
        raise ValueError(f"expected the name of a text, {' or '.join(_NAMES)}, got {name!r}")
    return (files("kvviz") / f"{name}.txt").read_text(encoding="utf-8")
