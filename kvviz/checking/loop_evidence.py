"""What the rules of a loop look at: a loop that ran, and one step of it beside the right text.

A step is judged by what the cache held and by what was fed after it, never by how the loop got
there: a cache may be copied, cropped and filled again. Only sequence 0 is read.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from kvviz.checking.causes import Cause
from kvviz.checking.compare import Comparison, Reference
from kvviz.checking.loop_watch import Watch
from kvviz.recording.run import Run
from kvviz.recording.step import Step


@dataclass(frozen=True)
class LoopEvidence:
    """A loop that ran: what it was given, what was recorded, and what it returned or raised.

    Attributes:
        watch: the logits of all rows, and the tokens of embeddings.
        prompt_changed: whether the tensor with the prompt was written to.
        drew_numbers: whether random numbers were drawn while it ran.
        hidden: last hidden states of the right text, (p + n - 1, width).
    """

    reference: Reference
    run: Run
    watch: Watch
    out: object
    error: BaseException | None = None
    prompt_changed: bool = False
    drew_numbers: bool = False
    hidden: Tensor | None = None

    @property
    def has_ids(self) -> bool:
        """Whether it returned token ids, (1, any number)."""
        out = self.out
        if not isinstance(out, torch.Tensor) or out.is_floating_point() or out.is_complex():
            return False
        return out.ndim == 2 and out.shape[0] == 1 and out.dtype != torch.bool

    @cached_property
    def n_equal(self) -> int:
        """How many tokens it returned, counted from the first, are the right ones; all, if none
        can be compared."""
        if not self.has_ids:
            return self.reference.ids.shape[1]
        length = min(self.out.shape[1], self.reference.ids.shape[1])
        equal = self.out[0, :length].cpu() == self.reference.ids[0, :length].cpu()
        return int(equal.long().cumprod(0).sum())

    @property
    def n_new(self) -> int:
        """How many tokens it returned after the prompt."""
        return self.out.shape[1] - self.reference.n_prompt

    def returned(self, position: int) -> int | None:
        """The token that it returned at a position; None if it returned none there."""
        return int(self.out[0, position]) if self.has_ids and position < self.out.shape[1] else None

    @cached_property
    def steps(self) -> list[StepEvidence]:
        """Each step, with the number of tokens of the right text that were computed before it."""
        steps, reach = [], 0
        for step in self.run:
            steps.append(StepEvidence(self, step, reach))
            if steps[-1].is_right:
                reach = max(reach, steps[-1].right_end)
        return steps

    @cached_property
    def right_steps(self) -> list[StepEvidence]:
        return [step for step in self.steps if step.is_right]

    @cached_property
    def is_supported(self) -> bool:
        """Whether each right token that it returned was chosen by a row with the right past."""
        rows = {position for step in self.right_steps for position in step.right_rows}
        return rows >= set(range(self.reference.n_prompt - 1, self.n_equal - 1))

    @cached_property
    def culprit(self) -> StepEvidence | None:
        """The first step that went wrong; None if all that counts is right."""
        for i, step in enumerate(self.steps):
            if not step.is_comparable or not step.entries.trouble:
                continue
            strays = (s for s in reversed(self.steps[:i]) if s.n_stray and s.right_end < step.held)
            return next(strays, step)  # one that fed another text, and the cache kept it
        for i, step in enumerate(self.steps):
            if step.is_comparable and (not step.n_right or step.kept_a_stray):
                went_on = any(s.held >= step.reach for s in self.right_steps if s.index > i)
                if not went_on:  # else it was tried, and taken back
                    return step
        return None

    def compare_entries(self, *, only_right: bool) -> Comparison:
        """Keys and values of the steps, as far as they are of the right text."""
        whole = Comparison(self.reference.gate)
        for step in self.right_steps if only_right else self.steps:
            is_culprit = not only_right and step is self.culprit
            part = step.compare_entries(self.n_equal) if is_culprit else step.entries
            _merge(whole, part)
        return whole

    def compare_logits(self, *, only_right: bool) -> Comparison:
        """The logits of every row with the right past, as far as they were seen."""
        whole = Comparison(self.reference.gate)
        for step in self.right_steps if only_right else self.steps:
            _merge(whole, step.logits)
        return whole


def _merge(whole: Comparison, part: Comparison):
    whole.gap, whole.count = max(whole.gap, part.gap), whole.count + part.count
    if whole.step is None:
        whole.step, whole.layer, whole.position = part.step, part.layer, part.position
        whole.trouble = part.trouble


@dataclass(frozen=True)
class StepEvidence:
    """One step of a loop beside the right text.

    Attributes:
        reach: tokens of the right text that the steps before it had computed, with the right past.
    """

    loop: LoopEvidence
    step: Step
    reach: int

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
        return ids if ids[0] >= 0 else self.loop.watch.token_ids.get(self.index, ids)

    @property
    def end(self) -> int:
        return self.held + len(self.fed)

    @cached_property
    def n_right(self) -> int:
        """How many tokens, from the first it was fed, are those that come after what was held."""
        if self.fed[0] < 0:
            return self._n_right_columns()
        pairs = zip(self.fed, self.text[self.held :], strict=False)
        return next((i for i, (a, b) in enumerate(pairs) if a != b), self._n_in_text)

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
        if not self.n_stray:
            return False
        return self.loop.returned(self.right_end) == self.fed[self.n_right]

    @property
    def right_end(self) -> int:
        return self.held + self.n_right

    @property
    def right_rows(self) -> range:
        """The positions of the rows whose past is right."""
        return range(self.held, self.right_end)

    @property
    def is_next(self) -> bool:
        """Whether it was fed the tokens that come next, after a cache that holds all before."""
        return self.held == self.reach and self.n_right == len(self.fed)

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
        ours, right = self.loop.watch.hidden.get(self.index), self.loop.hidden
        if self.logits.count or ours is None or right is None or len(ours) < self.n_right:
            return False
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
        return self.loop.watch.rows_of(self.index, len(self.fed))

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
        return self.loop.run.label(token)

    def before(self) -> Iterator[StepEvidence]:
        """The steps before it, the latest first."""
        return reversed(self.loop.steps[: self.index])

    def cause(self, name: str, says: str) -> Cause:
        return Cause(name, f"step {self.index}: {says}", self.index)
