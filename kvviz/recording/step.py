"""One forward pass: a `Step` with what was fed, held and seen, and its `Square`s.

Steps, layers, heads, places and positions count from 0. A *place* is where a token stands in the
store or the sequence; its *position* is the number the model was told, which padding shifts.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
import torch

from kvviz.recording.square import Square

if TYPE_CHECKING:
    from kvviz.recording.run import Run

KEEP = ("attention", "queries", "keys", "values", "outputs", "logits")


@dataclass(repr=False)
class Step:
    """One forward pass. B sequences, Tq rows asking, Tk columns, H query heads, G key/value heads.

    Attributes:
        token_ids, position_ids: (B, Tq) int64.
        held_before, held_after: tokens taken into the store before and after this pass; 0 if none.
        before, after: the same for each layer that has keys and values.
        bytes: what the store's tensors take after this pass; slots: its room, if preallocated.
        rows_by_layer, columns_by_layer: queries asked and keys seen, layer by layer.
        kept: name -> layer -> float32 tensor; see `record`.
    """

    token_ids: torch.Tensor
    position_ids: torch.Tensor
    held_before: int
    before: dict[int, int]
    after: dict[int, int]
    bytes: int
    slots: int | None
    rows_by_layer: dict[int, int]
    columns_by_layer: dict[int, int]
    pads: torch.Tensor | None
    witness: torch.Tensor
    gaps: dict[int, float]
    kept: dict[str, dict[int, torch.Tensor]]
    run: Run | None = None
    index: int = -1
    parents: list[tuple[int, int] | None] = field(default_factory=list)  # (step, row) a batch row
    known: torch.Tensor | None = None  # (B, held_before): stored columns written in this recording
    recomputed: torch.Tensor | None = None  # (B, Tq): rows computed before
    moved: torch.Tensor | None = None  # (B, columns): tokens of columns out of place, else -1
    hashes: list[int] = field(default_factory=list)  # of each batch row's tokens so far

    def __repr__(self):
        held = f"held {self.held_before} before and {self.held_after} after"
        return f"step {self.index}: fed {self.fed}, {held}, newest at position {self.position}"

    @property
    def fed(self) -> int:
        """Tokens fed, hence rows computed, in this pass."""
        return self.token_ids.shape[1]

    rows = fed

    @property
    def visible(self) -> int:
        """Tokens that the newest row can see: those held before, and those fed."""
        return self.held_before + self.fed

    @property
    def held_after(self) -> int:
        return max(self.after.values(), default=0)

    @property
    def cached(self) -> bool:
        """Whether this pass read from a store or left one behind."""
        return self.held_after > 0

    @property
    def cells(self) -> int:
        """Cells of one head's causal square in the rows computed."""
        return self.rows * self.held_before + self.rows * (self.rows + 1) // 2

    @property
    def position(self) -> int:
        """Where the newest token of the first sequence sits."""
        return int(self.position_ids[0, -1])

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers that have keys and values; the others (linear attention) have none."""
        return tuple(sorted(self.columns_by_layer))

    def __getattr__(self, name):
        if name in KEEP:
            kept = self.__dict__.get("kept", {}).get(name, {})
            if not kept:
                raise AttributeError(
                    f"{name} were not kept in this recording: record(..., keep=({name!r},))"
                )
            return kept[-1] if name == "logits" else kept
        raise AttributeError(f"a Step has no {name!r}")

    def column_positions(self, layer: int) -> torch.Tensor:
        """(Tk,) int64: the place that each column of this layer holds, -1 for an empty slot."""
        self._check_layer(layer)
        n_columns = self.columns_by_layer[layer]
        total = self.before.get(layer, 0) + self.fed
        places = torch.arange(n_columns) + max(0, total - n_columns)
        return torch.where(places < total, places, -1)

    def row_positions(self, layer: int) -> torch.Tensor:
        """(Tq,) int64: the place of each row asked in this layer (the last ones, if fewer)."""
        self._check_layer(layer)
        return torch.arange(self.visible - self.rows_by_layer[layer], self.visible)

    def tokens(self, sequence: int = 0) -> list[int]:
        """Token ids by place, -1 where the key is not what this recording saw written."""
        if (moved := self._moved(sequence)) is not None:
            rows = (-2 - moved).clamp_min(0)
            return torch.where(moved < -1, self.token_ids[sequence][rows], moved).tolist()
        ids = np.full(self.visible, -1)
        step, row, alive = self, sequence, np.ones(self.visible, dtype=bool)
        while True:  # back through the steps that left what this one read
            own = slice(step.held_before, step.visible)
            ids[own] = np.where(alive[own], step.token_ids[row].numpy(), ids[own])
            parent = step.parents[row]
            if parent is None:
                return ids.tolist()
            alive = alive[: step.held_before] & step.known[row].numpy()
            step, row = self.run[parent[0]], parent[1]

    def _moved(self, sequence: int) -> torch.Tensor | None:
        """(columns,) what each column is where they are out of place: a token, or -2 - its row."""
        moved = None if self.moved is None else self.moved[sequence]
        return moved if moved is not None and bool((moved != -1).all()) else None

    def square(self, layer: int, head: int, sequence: int = 0) -> Square:
        """One head's square in this pass.

        Raises:
            ValueError: no such layer, head or batch row, or a layer whose attention was not kept.
        """
        self._check_layer(layer)
        n_batch = self.token_ids.shape[0]
        if not 0 <= sequence < n_batch:
            raise ValueError(
                f"sequence {sequence}: this recording has sequences 0 to {n_batch - 1}"
            )
        attention = self.kept.get("attention")
        if attention is not None and layer not in attention:
            kept = ", ".join(map(str, sorted(attention)))
            raise ValueError(f"layer {layer}: attention was kept of layers {kept} only")
        if attention is not None and not 0 <= head < attention[layer].shape[1]:
            raise ValueError(f"head {head}: layer {layer} has heads 0 to {self.n_heads - 1}")

        rows, places = self.row_positions(layer), self.column_positions(layer)
        total = self.visible
        n_places = max(total, self.slots or 0)
        filled = places >= 0
        weights, masked = None, torch.arange(n_places) > rows[:, None]
        if attention is not None:
            weights = torch.full((len(rows), n_places), torch.nan)
            weights[:, places[filled]] = attention[layer][sequence, head][:, filled]
            allowed = self.kept["allowed"][layer]
            allowed = allowed[min(sequence, len(allowed) - 1), min(head, allowed.shape[1] - 1)]
            masked = torch.zeros(len(rows), n_places, dtype=torch.bool)
            masked[:, places[filled]] = ~allowed[:, filled]

        states = ["empty"] * n_places
        pads = [False] * total if self.pads is None else self.pads[sequence].tolist()
        ids = self.tokens(sequence)
        seen, moved = set(places.tolist()), self._moved(sequence)
        own = rows if moved is None else moved.argsort()[: self.fed].flip(0)[-len(rows) :]
        row_states = [
            "recomputed" if again else "new" for again in self.recomputed[sequence].tolist()
        ]
        for place in range(total):
            if pads[place]:
                states[place] = "pad"
            elif place not in seen:
                states[place] = "dropped"
            elif moved is not None:
                new = int(moved[place]) < -1
                states[place] = row_states[-2 - int(moved[place])] if new else "read"
            elif place >= self.held_before:
                states[place] = row_states[place - self.held_before]
            else:
                states[place] = "read" if ids[place] >= 0 else "earlier"
        asked = rows.tolist()
        row_states = ["pad" if pads[place] else row_states[place - total] for place in asked]
        labels = [self.run.label(token) for token in ids] + [""] * (n_places - total)
        return Square(
            step=self.index,
            layer=layer,
            head=head,
            sequence=sequence,
            tokens=tuple(labels),
            column_states=tuple(states),
            row_positions=tuple(asked),
            row_states=tuple(row_states),
            weights=None if weights is None else weights.numpy(),
            masked=masked.numpy(),
            cached=self.cached,
            fed=self.fed,
            held_before=self.held_before,
            held_after=self.held_after,
            gap=self.gaps.get(layer, float("nan")),
            bytes=self.bytes,
            own_columns=tuple(own.tolist()),
        )

    @property
    def n_heads(self) -> int:
        """Query heads of the layers whose attention was kept."""
        return next(iter(self.attention.values())).shape[1]

    def _check_layer(self, layer):
        if layer not in self.columns_by_layer:
            layers = self.layers
            has = ", ".join(map(str, layers))
            if len(layers) > 2 and len(layers) == layers[-1] - layers[0] + 1:
                has = f"{layers[0]} to {layers[-1]}"
            raise ValueError(f"layer {layer} has no keys and values here; these layers do: {has}")


def same_columns(step, sequence, parent, row):
    """(held,) bool: the stored columns whose keys are those that `parent` left."""
    held = step.held_before
    same = torch.zeros(held, dtype=torch.bool)
    now, then = step.witness[sequence], parent.witness[row]
    # A window's columns are the last ones, a static store's empty slots come after the filled.
    now_first = max(0, step.visible - len(now))
    then_first = max(0, held - len(then))
    first = max(now_first, then_first)
    if first < held:
        left, right = now[first - now_first : held - now_first], then[first - then_first :]
        right = right[: len(left)]
        scale = right.abs().max().clamp_min(1e-6)
        same[first:] = ((left - right).abs() <= 1e-4 * scale).all(-1)
        same[:first] = same[first:].all()  # what a window let go of cannot be looked at
    return same
