"""What a step kept of each layer; a layer that is missing is explained."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from kvviz.arguments import describe


class NotKept(KeyError):
    """A layer that wasn't kept, or that the model doesn't have."""

    def __str__(self):  # a KeyError would show its message in quotes
        return self.args[0]


class Kept(dict):
    """Layer -> tensor of what a step kept; a layer that is missing is explained."""

    def __init__(self, name: str, kept: dict[int, torch.Tensor], layers: Sequence[int]):
        super().__init__(kept)
        self._name, self._layers = name, layers

    def __missing__(self, layer):
        if layer in self._layers:
            raise NotKept(f"layer {describe(layer)}: {say_kept(self._name, self, layer)}")
        known = ", ".join(map(str, self._layers))
        raise NotKept(f"layer {describe(layer)}: expected one of this model's, {known}")


def say_kept(name: str, kept, wanted: int) -> str:
    """Which layers were kept, and how to keep another one too."""
    has, both = ", ".join(map(str, sorted(kept))), sorted({*kept, wanted})
    verb = "was" if name == "attention" else "were"
    return f"{name} {verb} kept of layers {has} only; record(..., layers={both}) keeps it, too"
