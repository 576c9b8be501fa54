"""One step of a loop beside the right text.

It is judged by what the cache held and by what was fed after it, never by how the loop got there:
a cache may be copied, cropped and filled again. Of a batch one sequence is read; see `sequences`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

import torch
from torch import Tensor

from kvviz.checking.causes import Cause
from kvviz.checking.compare import Comparison, Reference, count_common
from kvviz.checking.kept import Kept
from kvviz.checking.loop_watch import Watch
from kvviz.recording.run import Run
from kvviz.recording.step import Step


class Loop(Protocol):
    """What a step reads of the loop it is part of; see `LoopEvidence`."""

    reference: Reference
    run: Run
    watch: Watch
    drew_numbers: bool
    kept: Kept | None
    steps: list[StepEvidence]
    n_equal: int
    error: BaseException | None

    def returned(self, position: int) -> int | None: ...

    def find_writer(self, step: StepEvidence, column: int) -> StepEvidence | None: ...


@dataclass(frozen=True)
class StepEvidence:
    """One step of a loop beside the right text.

    Attributes:
        step: with the one sequence that is read.
        reach: tokens of the right text that the steps before it had computed, with the right past.
        sequence: its number in the batch.
    """

    loop: Loop
    step: Step
    reach: int
    sequence: int = 0

    @property
    def index(self) -> int:
        return self.step.index

    @property
    def held(self) -> int:
        return self.step.held_before

    @cached_property
    def text(self) -> list[int]:
        """The right tokens."""
        return self.loop.reference.ids[0].tolist()

    @cached_property
    def fed(self) -> list[int]:
        ids = self.step.token_ids[0].tolist()
        found = self.loop.watch.token_ids.get(self.index)
        return ids if ids[0] >= 0 or found is None else found[self.sequence]

    @property
    def end(self) -> int:
        return self.held + len(self.fed)

    @cached_property
    def n_right(self) -> int:
        """How many tokens, from the first it was fed, are those that come after what was held."""
        if self.fed[0] < 0:
            return self._n_right_columns()
        return count_common(self.fed, self.text[self.held :])

    @property
    def _n_in_text(self) -> int:
        return max(0, min(len(self.fed), len(self.text) - self.held))

    def _n_right_columns(self) -> int:
        """The same for embeddings of no token: by the first layer's keys."""
        until = range(self.held + 1, self.held + self._n_in_text + 1)
        first = self.step.layers[:1]
        wrong = (end for end in until if self.compare_entries(end, first).trouble)
        return next(wrong, until.stop) - self.held - 1 if len(until) else 0

    @property
    def n_stray(self) -> int:
        """How many of the tokens it was fed are others than those that come next."""
        return self._n_in_text - self.n_right

    @property
    def kept_a_stray(self) -> bool:
        """Whether it was fed another token than the right one, which the loop returned too."""
        return self.n_stray > 0 and self.was_chosen(self.right_end, self.fed[self.n_right])

    def was_chosen(self, position: int, token: int) -> bool:
        """Whether the text returned is right up to a position and goes on with this token."""
        return self.loop.n_equal >= position and self.loop.returned(position) == token

    @property
    def right_end(self) -> int:
        return self.held + self.n_right

    @property
    def right_rows(self) -> range:
        """The positions of the rows whose past is right."""
        return range(self.held, self.right_end)

    @property
    def is_comparable(self) -> bool:
        """Whether there is something to compare it with: not after the end of the right text."""
        return min(self.held, self.reach) < self.loop.reference.whole.fed

    @cached_property
    def is_right(self) -> bool:
        """Whether it computed something of the right text from the right past."""
        if not self.is_comparable or not self.n_right:
            return False
        return not self.entries.trouble and not self.logits.trouble and not self._hidden_differs

    @property
    def _hidden_differs(self) -> bool:
        every, right = self.loop.watch.hidden.get(self.index), self.loop.reference.hidden
        if self.logits.count or every is None or right is None or every.shape[1] < self.n_right:
            return False
        ours = every[self.sequence]
        end = min(self.right_end, len(right))
        gap = (ours[: end - self.held] - right[self.held : end]).abs().max() / right.abs().max()
        return not gap <= self.loop.reference.gate

    @cached_property
    def entries(self) -> Comparison:
        """Keys and values of the positions that it has right."""
        return self.compare_entries(self.right_end)

    def compare_entries(self, end: int, layers=None) -> Comparison:
        """Keys and values at the positions before `end`, each column with the right one."""
        compared, whole = Comparison(self.loop.reference.gate), self.loop.reference.whole
        step = self.step
        for layer in step.layers if layers is None else layers:
            positions = self._column_positions(layer)
            for name in ("keys", "values"):
                ours, right = step.kept[name][layer][0], whole.kept[name][layer][0]
                known = (positions >= 0) & (positions < min(end, right.shape[1]))
                if known.any():
                    ours, at = ours[:, known], positions[known]
                    compared.add(ours, right[:, at], at, right.abs().max(), self.index, layer)
        return compared

    def _column_positions(self, layer) -> Tensor:
        step = self.step
        if layer in step.before or not step.before:
            return step.column_positions(layer)
        other = replace(step, before={**step.before, layer: step.held_before})
        return other.column_positions(layer)  # it has no slot, and uses another layer's

    @cached_property
    def rows(self) -> dict[int, Tensor]:
        """The logits of each row that was seen, by row from 0."""
        return self.loop.watch.rows_of(self.index, len(self.fed), self.sequence)

    @cached_property
    def logits(self) -> Comparison:
        """The logits of the rows that it has right, as far as they were seen."""
        compared, right = Comparison(self.loop.reference.gate), self.loop.reference.logits
        scale = right.abs().max()
        for row, ours in self.rows.items():
            position = self.held + row
            if row < self.n_right and position < right.shape[1]:
                at = torch.tensor([position])
                compared.add(ours[None, None], right[:, at], at, scale, self.index)
        return compared

    @cached_property
    def best(self) -> int | None:
        """The token with the highest score in its last row; None if it was not seen."""
        row = len(self.fed) - 1
        return int(self.rows[row].argmax()) if row in self.rows else None

    def label(self, token: int) -> str:
        return "an embedding of no token" if token < 0 else self.loop.run.label(token)

    def before(self) -> Iterator[StepEvidence]:
        """The steps before it, the latest first."""
        return reversed(self.loop.steps[: self.index])

    def cause(self, name: str, says: str) -> Cause:
        return Cause(name, f"step {self.index}: {says}", self.index)
