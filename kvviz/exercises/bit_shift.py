"""Round a cache with a learner's own function, and measure how far the loss moves."""

from __future__ import annotations

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor

from kvviz.exercises.answers import to_number, to_tensor
from kvviz.exercises.feedback import NOT_DONE, Feedback, reject, run_answer
from kvviz.forge import Forge, KVCache, KVEntry

BITS, GROUP = 4, 64
AXES = {-2: "channel", -1: "token"}


class Rounded(NamedTuple):
    """What the learner's function returned, as tensors."""

    whole: Tensor
    scale: Tensor
    zero: Tensor

    def restore(self) -> Tensor:
        return self.whole.double() * self.scale.double() + self.zero.double()


def call_quantise(function, x: Tensor, bits: int, axis: int):
    """What `function` returns for x, as `Rounded`, and None; or None and feedback."""
    answer, problem = run_answer(function, x.clone(), bits, axis)
    if problem is NOT_DONE:
        return None, reject("your function returned nothing: return whole, scale, zero")
    if problem:
        return None, problem
    if not isinstance(answer, tuple | list) or len(answer) not in (2, 3):
        came = type(answer).__name__
        return None, reject(f"expected three things, whole, scale and zero, but got a {came}")
    answer = (*answer, torch.zeros((), dtype=torch.float16))[:3]  # a scale alone is fine, too
    parts = [to_tensor(x if to_number(x) is None else torch.as_tensor(x)) for x in answer]
    for name, part in zip(Rounded._fields, parts, strict=True):
        if part is None or part.is_complex():
            return None, reject(f"{name}: expected a tensor of numbers")
        if not torch.isfinite(part.double()).all():
            return None, reject(f"{name}: some numbers aren't finite. Is anything divided by 0?")
    rounded = Rounded(*parts)
    if rounded.whole.shape != x.shape:
        shapes = f"{tuple(x.shape)}, the shape of x, but got {tuple(rounded.whole.shape)}"
        return None, reject(f"whole: expected {shapes}")
    if (rounded.whole != rounded.whole.round()).any():
        return None, reject("whole: expected whole numbers. Round after dividing by the scale.")
    try:
        fits = torch.broadcast_shapes(*(part.shape for part in rounded)) == x.shape
    except RuntimeError:
        fits = False
    if not fits:
        shapes = f"{tuple(rounded.scale.shape)} and {tuple(rounded.zero.shape)}"
        return None, reject(
            f"scale and zero, {shapes}, don't fit x, {tuple(x.shape)}: keepdim=True keeps the axis"
        )
    return rounded, None


_exact: WeakKeyDictionary = WeakKeyDictionary()  # per model: {text: the losses as floats}


class RoundedCache(KVCache):
    """Every 64 tokens are rounded once, by the learner's function; the newest are floats."""

    def __init__(self, n_layers: int, function):
        super().__init__(n_layers)
        self.function, self.problem, self.done = function, None, [0] * n_layers

    def update(self, layer: int, entry: KVEntry) -> None:
        start = self.done[layer]
        while entry.keys.shape[2] - start >= GROUP and not self.problem:
            entry = KVEntry(*map(self._round, entry, AXES, [start] * 2))
            start += GROUP
        self.done[layer] = start
        super().update(layer, entry)

    def _round(self, x: Tensor, axis: int, start: int) -> Tensor:
        group = x[:, :, start : start + GROUP]
        rounded, problem = call_quantise(self.function, group, BITS, axis)
        if problem:
            self.problem = self.problem or problem
            return x
        return torch.cat([x[:, :, :start], rounded.restore().to(x), x[:, :, start + GROUP :]], 2)


def measure_shift(function, model, ids: Tensor) -> float | Feedback:
    """How far a token's loss moves, on average; feedback if the function fails on the model."""
    forge, known = Forge.from_pretrained(model), _exact.setdefault(model, {})
    text, n_layers = tuple(ids.flatten().tolist()), len(forge.layers)
    if text not in known:
        known[text] = _measure_losses(forge, KVCache(n_layers), ids)
    cache = RoundedCache(n_layers, function)
    losses = _measure_losses(forge, cache, ids)
    return cache.problem or float((losses - known[text]).abs().mean())


def _measure_losses(forge: Forge, cache: KVCache, ids: Tensor) -> Tensor:
    logits = torch.cat([forge(chunk, cache) for chunk in ids.split(GROUP, dim=1)], dim=1)
    return torch.nn.functional.cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none")
