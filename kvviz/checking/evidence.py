"""What the rules of a cache look at: one layer in one step.

Evidence is only read while it is judged. C columns, D head width; all of sequence 0.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from kvviz.checking.causes import UNKNOWN, Cause
from kvviz.checking.columns import CLOSE, Columns, match_columns
from kvviz.checking.compare import SEEN


class LayerEvidence:
    """What attention saw and gave in one layer of one step, beside what was right.

    Args:
        run, index, layer: the steps, recorded or traced, which of them, and which layer.
        fed_before: tokens fed in the steps before.
        rotate: (x, positions) -> x rotated, to find the position a key was rotated for; None for
            a model of the library.
        n_earlier: tokens of the text that the cache held before it was emptied.
        others: name of a cause -> the `Text` that would then be held at first.
        sequence: which of the batch.
    """

    def __init__(
        self, run, index, layer, fed_before, reference, gate, rotate=None, n_earlier=0,
        others=None, sequence=0,
    ):  # fmt: skip
        self.run, self.step, self.number, self.fed_before = run, run[index], layer, fed_before
        self.index, self.reference, self.gate, self.rotate = index, reference, gate, rotate
        self.n_earlier, self.others, self.sequence = n_earlier, others, sequence
        step, whole = self.step, reference.whole
        self.end = fed_before + step.fed
        self.held = step.before.get(layer, 0 if rotate else step.held_before)
        seen = [step.kept[name].get(layer) for name in SEEN]  # no output if attention raised
        seen = [None if x is None else x[sequence] for x in seen]
        self.query, keys, values, self.output = seen
        positions = torch.arange(self.end)
        if rotate is None and self.held == fed_before:  # windows and preallocated caches
            positions = step.column_positions(layer)
            filled = positions >= 0
            if len(positions) == keys.shape[1]:  # an empty slot holds nothing
                keys, values = keys[:, filled], values[:, filled]
            positions = positions[filled]
        query, right_keys, right_values, output = (whole.kept[n][layer][sequence] for n in SEEN)
        self.right_query, self.right_output = (x[:, fed_before : self.end] for x in (query, output))
        rights = right_keys[:, positions], right_values[:, positions]
        self.seen = Columns(keys, values, *rights, positions)  # all the columns attention saw

    @cached_property
    def columns(self) -> Columns:
        """What to judge column by column.

        That is all attention saw; or, where the cache held too few columns or too many, only what
        it held: the positions of the new tokens follow from that.
        """
        return self.seen if self.held == self.fed_before else self.past

    @cached_property
    def past(self) -> Columns:
        """What came out of the cache, beside what should have."""
        seen, held, fed_before = self.seen, self.held, self.fed_before
        ours = self.entry("pasts")
        if ours is None:
            ours = seen.keys[:, :held], seen.values[:, :held]
        rights = seen.right_keys[:, :fed_before], seen.right_values[:, :fed_before]
        return Columns(*ours, *rights, seen.positions[:fed_before])

    def entry(self, name: str):
        """(keys, values) of this layer that a traced step has under this name; None if it hasn't.

        "pasts": what `get` returned, where attention saw something else. "news": what `append`
        was given.
        """
        entry = getattr(self.step, name, {}).get(self.number)
        return None if entry is None else tuple(x[self.sequence] for x in entry)

    @property
    def changed_inside(self) -> bool | None:
        """Whether the cache returned other numbers than it was given; None if that wasn't seen."""
        return getattr(self.step, "changed", {}).get(self.number)

    @property
    def first_difference(self) -> str | None:
        """What differs first, in the order in which the numbers flow; None if nothing does."""
        if getattr(self.step, "rows", 0) > self.step.fed:  # a call that ran over its tokens again
            return "rows"
        if self.fed_before == 0 < self.held:
            return "start"
        if self.query.shape[1] != self.step.fed:
            return "rows"
        if self.held != self.fed_before:
            return "held"
        pairs = {
            "queries": [(self.query, self.right_query)],
            "columns": self.seen.pairs,
            "outputs": [] if self.output is None else [(self.output, self.right_output)],
        }
        differs = (name for name in pairs if any(self.differs(*pair) for pair in pairs[name]))
        return next(differs, None)

    def differs(self, ours: Tensor, right: Tensor) -> bool:
        if ours.shape != right.shape:
            return True
        return not (ours - right).abs().max() <= self.gate * right.abs().max()

    def find_rotation(self, ours, right, positions) -> list[int] | None:
        """The position each column was rotated for; None if for some column none fits."""
        if self.rotate is None or ours.shape != right.shape:
            return None
        candidates, found = torch.arange(-self.end, 2 * self.end + self.n_earlier + 2), []
        for i, position in enumerate(positions):
            plain = self.rotate(right[None, :, i : i + 1], torch.tensor([-position]))
            every = self.rotate(plain.expand(-1, -1, len(candidates), -1), candidates)[0]
            fits = candidates[match_columns(ours[:, i : i + 1], every)[0]].tolist()
            if not fits:
                return None
            found.append(position if position in fits else fits[0])
        return found

    def gives(self, visible: Tensor, output: Tensor | None = None) -> bool:
        """Whether attention under this mask (rows, columns) gives this output, to rounding."""
        output = self.output if output is None else output
        return self.blend_gap(visible, output) <= CLOSE * float(output.abs().max())

    def explains(self, visible: Tensor) -> bool:
        """Whether this mask gives the output, and the right mask is much further from it."""
        causal = torch.arange(self.fed_before, self.end)[:, None] >= self.seen.positions[None]
        if torch.equal(visible, causal) or not self.gives(visible):
            return False
        return self.blend_gap(visible, self.output) < self.blend_gap(causal, self.output) / 3

    def blend_gap(self, visible: Tensor, output: Tensor) -> float:
        """How far an output is from attention under this mask; infinite if it has another shape."""
        shared_by = self.query.shape[0] // self.seen.keys.shape[0]
        keys = self.seen.keys.repeat_interleave(shared_by, 0)
        values = self.seen.values.repeat_interleave(shared_by, 0)
        scores = self.query @ keys.transpose(1, 2) * self.query.shape[-1] ** -0.5
        blend = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num() @ values
        return float((blend - output).abs().max()) if blend.shape == output.shape else torch.inf

    def next_step(self) -> LayerEvidence | None:
        """The same layer one step later; None after the last step, or past the end of the text."""
        later = self.index + 1
        if later >= len(self.run) or self.end + self.run[later].fed > self.reference.whole.fed:
            return None
        if self.number not in self.run[later].layers:
            return None
        rest = self.end, self.reference, self.gate, self.rotate, 0, None, self.sequence
        return LayerEvidence(self.run, later, self.number, *rest)

    def cause(self, name: str, says: str, position: int | None = None) -> Cause:
        index, layer = self.step.index, self.number
        at = f"step {index}"
        if name == UNKNOWN or layer != self.step.layers[0]:
            at += f", layer {layer}"
        return Cause(name, f"{at}: {says}", index, layer, position)
