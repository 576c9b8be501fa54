"""Refuse, by name and with the reason, what a recording could not show as it is."""

from __future__ import annotations

import contextlib
from typing import NoReturn
from weakref import WeakSet

from kvviz.recording import cache_state


def refuse(model, reason: str | None = None) -> NoReturn:
    """Raise the error for a model that cannot be recorded, by name and with the reason."""
    reason = reason or (
        "its attention does not go through the library's attention interface (Llama, Mistral, "
        "GPT-2, GPT-NeoX, Gemma, Qwen and most decoders do)"
    )
    raise ValueError(f"{type(model).__name__} cannot be recorded: {reason}")


def refuse_second(model) -> NoReturn:
    """Raise the error for a model that is being recorded already."""
    raise ValueError(
        f"this {type(model).__name__} is being recorded already: leave the first `with` block of "
        "record or record_serving before you start a second"
    )


PAGED = "PagedAttentionCache"  # the type of an engine's cache
_served = WeakSet()  # models, and their parts, whose engine is being recorded


def is_served(model) -> bool:
    """Whether `record_serving` records this model now."""
    return model in _served


@contextlib.contextmanager
def mark_served(modules):
    """Inside the block, these modules of one model count as being recorded."""
    _served.update(modules)
    try:
        yield
    finally:
        _served.difference_update(modules)


def name_serving(model) -> ValueError:
    """The error for an engine inside `record`: what to use instead."""
    return ValueError(
        f"{type(model).__name__}.generate_batch is unsupported inside record: one pass of an "
        "engine holds the tokens of several requests, in pages. Use record_serving instead"
    )


@contextlib.contextmanager
def refuse_batching(model):
    """Inside the block, an engine does not start: it says what records it."""
    name = "init_continuous_batching"

    def refuse_call(*_, **__):
        raise name_serving(model)

    if not hasattr(model, name):
        yield
        return
    setattr(model, name, refuse_call)
    try:
        yield
    finally:
        delattr(model, name)


class Guard:
    """Notices what one forward pass does that a recording would not see, and refuses it.

    Args:
        opened: the model, as `hooks.open_model` returns it.
        cache: the cache before the pass, and `before`: what each of its layers holds.
        fed: tokens fed.
        keep: what is to be kept; see `record`.
    """

    def __init__(self, opened, cache, before: dict[int, int], fed: int, keep):
        self.model, self.keep = opened.model, keep
        self._expected = cache_state.count_columns(cache, fed)
        self._total = {layer: held + fed for layer, held in before.items()}
        if cache is None and not opened.is_forge:
            self._expected = dict.fromkeys(range(opened.n_layers), (fed, fed))
        self._attended: dict[int, tuple] = {}  # each layer's query and key

    def has_attended(self, layer, query, key) -> bool:
        """Whether this is a layer's second call, with the same weights and other values."""
        if layer not in self._attended:
            self._attended[layer] = query, key
            return False
        first = self._attended[layer]
        if first[0] is not query or first[1] is not key:
            self._refuse(f"its layer {layer} attends more than once in one forward pass")
        if {"values", "outputs"} & set(self.keep):
            self._refuse(
                f"its layer {layer} blends its values in two halves: keep neither values nor "
                "outputs"
            )
        return True

    def check_columns(self, layer, n_columns):
        """Refuse columns that are not the last positions, of those held and those fed."""
        if layer not in self._expected:  # a forge's layer, or one that uses the keys of another
            return
        expected, end = self._expected[layer]
        if n_columns != expected:
            self._refuse(
                f"its layer {layer} attends to {n_columns} keys, where {expected} positions are "
                "held or fed"
            )
        if end < self._total.get(layer, 0):
            self._refuse(f"its layer {layer} does not attend to the last positions")

    def check_weights(self, layer, weights, expected):
        """Refuse weights of which it isn't known which row and column each belongs to."""
        if weights is None:
            self._refuse(f"its layer {layer} does not give back its weights")
        if (shape := tuple(weights.shape[-2:])) != expected:
            self._refuse(
                f"its layer {layer} gives weights of (rows, columns) {shape}, where (queries, "
                f"keys) are {expected}"
            )

    def check_end(self, cache):
        """Refuse a pass with a layer that holds keys, and whose attention was not seen."""
        if not self._attended:
            refuse(self.model)
        written = cache_state.list_written(cache)
        if unseen := sorted(written.keys() - self._attended.keys()):
            layers = ", ".join(map(str, unseen))
            self._refuse(f"its cache holds keys of layers that were not seen to attend: {layers}")
        if odd := next(filter(None, written.values()), None):
            self._refuse(odd)

    def _refuse(self, reason):
        refuse(self.model, reason)
