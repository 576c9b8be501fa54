"""Recognise a key or a value by its witness: two numbers computed from it.

If two keys have equal witnesses, they are taken to be equal; so a column is recognised without a
copy of all its numbers.
"""

from __future__ import annotations

import functools

import torch


def take_witness(tensor: torch.Tensor) -> torch.Tensor:
    """Keys or values (B, G, Tk, D) -> (B, Tk, 2): two numbers to recognise each column by."""
    flat = tensor.detach().to("cpu", torch.float32).transpose(1, 2).flatten(2)
    return flat @ _draw_directions(flat.shape[-1])


@functools.cache
def _draw_directions(width: int) -> torch.Tensor:
    """(width, 2), the same in every recording."""
    return torch.randn(width, 2, generator=torch.Generator().manual_seed(0))


def compare_witnesses(now, witness, past, past_witness) -> torch.Tensor:
    """(held,) bool: which of the columns held before a pass are as an earlier pass left them.

    Args:
        now, past: the two passes, each with its `visible` columns, and `held` before it.
        witness, past_witness: of one sequence of each, (Tk, 1 or 2).
    """
    held = now.held
    same = torch.zeros(held, dtype=torch.bool)
    # A window has the last columns only; a static cache has empty slots after the filled ones.
    first_now = max(0, now.visible - len(witness))
    first_past = max(0, past.visible - len(past_witness))
    first = max(first_now, first_past)
    if first < held:
        left = witness[first - first_now : held - first_now]
        right = past_witness[first - first_past : held - first_past]
        if torch.equal(left, right):  # the usual case, in one operation
            return torch.ones(held, dtype=torch.bool)
        scale = right.abs().max().clamp_min(1e-6)
        same[first:] = ((left - right).abs() <= 1e-4 * scale).all(-1)
        same[:first] = same[first:].all()  # columns that left the window cannot be compared
    return same
