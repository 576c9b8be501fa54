"""Texts that come with the course, so that a loss is measured on the same words everywhere."""

from importlib.resources import files

from kvviz.arguments import describe

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
    if not isinstance(name, str) or name not in _NAMES:
        known = " or ".join(_NAMES)
        raise ValueError(f"expected the name of a text, {known}, got {describe(name)}")
    return (files("kvviz") / f"{name}.txt").read_text(encoding="utf-8")
