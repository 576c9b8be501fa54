"""One forward pass: a `Step` with what was fed, held and seen, and its `Square`s.

Everything counts from 0: steps, layers, heads, positions. A token's position here is its index in
the sequence; `position_ids` holds the number that the model was given, which padding shifts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch

from kvviz.arguments import check_whole, describe, is_whole
from kvviz.recording.cropped import count_cropped
from kvviz.recording.cut_square import cut_square
from kvviz.recording.kept import Kept, say_kept
from kvviz.recording.lineage import Lineage
from kvviz.recording.square import Square

KEEP = ("attention", "queries", "keys", "values", "outputs", "logits")


@dataclass(repr=False, eq=False)
class Step:
    """One forward pass: B sequences, Tq rows, Tk columns, H query heads, G key/value heads.

    Attributes:
        index: its number in the recording, from 0.
        token_ids, position_ids: (B, Tq) int64.
        held_before, held_after: tokens in the cache before and after this pass; 0 without a cache.
        before, after: the same for each layer that has keys and values.
        bytes: what the tensors in the cache take after this pass; None if that isn't known.
        slots: how many tokens a preallocated cache has room for; None for any other.
        rows_by_layer, columns_by_layer: how many queries and keys each layer's attention saw.
        kv_heads_by_layer: G of each layer.
        widths_by_layer: how many numbers a key and a value of each layer have.
        pads: (B, held before + Tq) bool, the positions that are padding; None if none was marked.
        gaps: layer -> largest |weights @ values - output|, relative to the largest |output|.
        implementation: which attention ran: "eager" where attention is kept, else the model's
            own setting, such as "sdpa"; "forge" in a forge.
        kept: name -> layer -> float32 tensor; see `record`.
        lineage: where its rows and columns came from.
        run: the steps of this recording.
        label: gives a token id its text.
    """

    index: int
    token_ids: torch.Tensor
    position_ids: torch.Tensor
    held_before: int
    before: dict[int, int]
    after: dict[int, int]
    bytes: int | None
    slots: int | None
    rows_by_layer: dict[int, int]
    columns_by_layer: dict[int, int]
    kv_heads_by_layer: dict[int, int]
    widths_by_layer: dict[int, list[int]]
    pads: torch.Tensor | None
    gaps: dict[int, float]
    implementation: str
    kept: dict[str, dict[int, torch.Tensor]]
    lineage: Lineage
    run: Sequence[Step]
    label: Callable[[int], str]

    def __repr__(self):
        held = f"held {self.held_before} before and {self.held_after} after"
        return f"step {self.index}: fed {self.fed}, {held}, newest at position {self.position}"

    @property
    def fed(self) -> int:
        """Tokens fed, and so rows computed, in this pass."""
        return self.token_ids.shape[1]

    rows = fed

    @property
    def visible(self) -> int:
        """Tokens that the newest row can see: those held before, and those fed."""
        return self.held_before + self.fed

    @property
    def held_after(self) -> int:
        """Tokens in the cache after this pass."""
        return max(self.after.values(), default=0)

    @property
    def cached(self) -> bool:
        """Whether this pass left tokens in a cache."""
        return self.held_after > 0

    @property
    def cropped(self) -> int | None:
        """How many of the last rows were taken out of the cache before a later pass read them.

        It's known once a later pass goes on from this one, so it's None for the last step.

        >>> run[1].cropped, run[4].cropped
        (0, None)
        """
        return count_cropped(self)

    @property
    def cells(self) -> int:
        """Cells of one head's causal square in the rows computed."""
        return self.rows * self.held_before + self.rows * (self.rows + 1) // 2

    @property
    def position(self) -> int:
        """The position that the model was given for the first sequence's newest token."""
        return int(self.position_ids[0, -1])

    @property
    def layers(self) -> tuple[int, ...]:
        """Layers that have keys and values; linear attention has none."""
        return tuple(sorted(self.columns_by_layer))

    @property
    def n_heads(self) -> int:
        """Query heads of the layers whose attention was kept."""
        return next(iter(self.attention.values())).shape[1]

    def __getattr__(self, name):
        if name in KEEP:
            kept = self.__dict__.get("kept", {}).get(name, {})
            if not kept:
                raise AttributeError(
                    f"{name} were not kept in this recording: record(..., keep=({name!r},))"
                )
            return kept[-1] if name == "logits" else Kept(name, kept, self.layers)
        raise AttributeError(f"a Step has no {name!r}")

    def column_positions(self, layer: int) -> torch.Tensor:
        """(Tk,) int64: the position in each column of this layer, -1 for an empty slot.

        Raises:
            ValueError: no such layer, or one without keys and values.

        >>> run[2].column_positions(0)
        tensor([0, 1, 2, 3, 4, 5, 6, 7])
        """
        layer = self._check_layer(layer)
        n_columns = self.columns_by_layer[layer]
        # A layer that holds nothing of its own attends to what another one holds.
        total = self.before.get(layer, self.held_before) + self.fed
        positions = torch.arange(n_columns) + max(0, total - n_columns)
        return torch.where(positions < total, positions, -1)

    def row_positions(self, layer: int) -> torch.Tensor:
        """(Tq,) int64: the position of each row of this layer; the last ones if it has fewer rows.

        Raises:
            ValueError: no such layer, or one without keys and values.

        >>> run[2].row_positions(0)
        tensor([7])
        """
        layer = self._check_layer(layer)
        return torch.arange(self.visible - self.rows_by_layer[layer], self.visible)

    def tokens(self, sequence: int = 0) -> list[int]:
        """The token id in each column; -1 if this recording did not see its key written.

        Raises:
            ValueError: no such sequence.

        >>> run[1].tokens()[:6] == ids[0].tolist()
        True
        """
        sequence = self._check_sequence(sequence)
        key_order, _ = self.lineage.select_orders(sequence)
        if key_order is not None:
            return key_order.tokens.tolist()
        return self.trace_columns(sequence, "keys_known")[0]

    def trace_columns(self, sequence: int, known: str) -> tuple[list[int], list[bool]]:
        """Each column's token id, and whether this recording saw it written; in order.

        `known` is "keys_known" or "values_known". A column made from an embedding has no token id.

        Raises:
            ValueError: no such sequence, or another word for what is known.
        """
        sequence = self._check_sequence(sequence)
        if not isinstance(known, str) or known not in ("keys_known", "values_known"):
            expected = "'keys_known' or 'values_known'"
            raise ValueError(f"known: expected {expected}, but got {describe(known)}")
        ids, is_seen = np.full(self.visible, -1), np.zeros(self.visible, dtype=bool)
        step, row, is_known = self, sequence, np.ones(self.visible, dtype=bool)
        while True:  # back through the steps that left what this one read
            own = slice(step.held_before, len(is_known))
            is_own = is_known[own]
            ids[own] = np.where(is_own, step.token_ids[row].numpy()[: len(is_own)], ids[own])
            is_seen[own] |= is_own
            parent = step.lineage.parents[row]
            if parent is None:
                return ids.tolist(), is_seen.tolist()
            is_left = getattr(step.lineage, known)[row].numpy()[: len(is_known)]
            is_known = is_known[: step.held_before] & is_left
            step, row = self.run[parent[0]], parent[1]

    def square(self, layer: int, head: int, sequence: int = 0) -> Square:
        """One head's square in this pass.

        Raises:
            ValueError: no such layer, head or sequence, or a layer whose attention was not kept.

        >>> run[2].square(layer=0, head=5).column_states[-2:]
        ('read', 'new')
        """
        layer, sequence = self._check_layer(layer), self._check_sequence(sequence)
        return cut_square(self, layer, self._check_head(layer, head), sequence)

    def _check_sequence(self, sequence) -> int:
        n_sequences = self.token_ids.shape[0]
        if not is_whole(sequence) or not 0 <= sequence < n_sequences:
            has = f"this recording has sequences 0 to {n_sequences - 1}"
            raise ValueError(f"sequence {describe(sequence)}: {has}")
        return int(sequence)

    def _check_head(self, layer, head) -> int:
        attention = self.kept.get("attention")
        if attention is None:
            return check_whole("head", head, least=0)
        if layer not in attention:
            raise ValueError(f"layer {layer}: {say_kept('attention', attention, layer)}")
        if not is_whole(head) or not 0 <= head < attention[layer].shape[1]:
            raise ValueError(
                f"head {describe(head)}: layer {layer} has heads 0 to {self.n_heads - 1}"
            )
        return int(head)

    def _check_layer(self, layer) -> int:
        if not is_whole(layer) or int(layer) not in self.columns_by_layer:
            layers = self.layers
            has = ", ".join(map(str, layers))
            if len(layers) > 2 and len(layers) == layers[-1] - layers[0] + 1:
                has = f"{layers[0]} to {layers[-1]}"
            which = describe(layer)
            raise ValueError(f"layer {which} has no keys and values here; these layers do: {has}")
        return int(layer)
