"""Refuse a call that a model would take, and silently get wrong, or fail on deep inside."""

from __future__ import annotations

import torch

from kvviz.recording import cache_state
from kvviz.recording.forward_pass import ForwardPass
from kvviz.words import pluralize


def check_input(forward: ForwardPass, opened):
    """Check a forward pass before it runs; `opened` is its model, from `hooks.open_model`.

    Raises:
        TypeError: token ids that are no integers.
        ValueError: another wrong argument, with what was expected and what came.
    """
    if not opened.is_forge:  # it checks its ids itself
        _check_ids(forward.token_ids, forward.has_ids, opened)
    _check_argmax(forward.token_ids, opened.model.config)
    _check_room(forward, opened)


def _check_ids(ids, has_ids, opened):
    if ids.dtype not in (torch.int64, torch.int32):
        raise TypeError(f"expected input_ids as a tensor of int64, got {ids.dtype}")
    if ids.ndim != 2 or not ids.numel():
        error = ValueError(f"expected input_ids (batch, tokens), got {tuple(ids.shape)}")
        if ids.ndim == 2:
            error.cause = "nothing fed"
        raise error
    n = opened.n_embeddings
    if has_ids and n is not None and not 0 <= int(ids.min()) <= int(ids.max()) < n:
        wrong = ids[(ids < 0) | (ids >= n)][0]
        raise ValueError(f"expected input_ids from 0 to {n - 1}, got {int(wrong)}")


def _check_argmax(ids, config):
    fed = ids.shape[-1]
    if fed == getattr(config, "vocab_size", None) and not ids.any():
        # An argmax over the rows of (1, 1, vocabulary) logits: one 0 for each token there is.
        error = ValueError(
            f"{fed} tokens fed, as many as the vocabulary has: was the argmax taken over the "
            "wrong axis? It is the last one, dim=-1"
        )
        error.cause = "argmax over the wrong axis"
        raise error


def _check_room(forward, opened):
    fed, held, mask = forward.fed, forward.held_before, forward.attention_mask
    if mask is not None and mask.ndim == 2 and mask.shape[1] < held + fed:
        raise ValueError(
            f"attention_mask covers {pluralize(mask.shape[1], 'position')}, but "
            f"{pluralize(held, 'token')} held and {fed} fed take {held + fed}"
        )
    slots = cache_state.count_slots(forward.cache)
    if slots is not None and held + fed > slots:
        raise ValueError(
            f"the cache has {pluralize(slots, 'slot')}, {held} of them filled, and "
            f"{pluralize(fed, 'more token')} can't fit"
        )
    if opened.max_positions and held + fed > opened.max_positions:
        raise ValueError(
            f"{type(opened.model).__name__} knows {opened.max_positions} positions, "
            f"but {held} tokens are held and {fed} fed"
        )
