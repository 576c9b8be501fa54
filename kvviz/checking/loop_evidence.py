"""What the rules of a loop look at: a loop that ran, beside the right text."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor

from kvviz.checking.compare import Comparison, Reference
from kvviz.checking.kept import Kept
from kvviz.checking.learner_code import to_tensor
from kvviz.checking.loop_inputs import WHOLE_NUMBERS
from kvviz.checking.loop_watch import Watch
from kvviz.checking.step_evidence import StepEvidence
from kvviz.recording.run import Run


@dataclass(frozen=True)
class LoopEvidence:
    """A loop that ran: what it was given, what was recorded, and what it returned or raised.

    Attributes:
        watch: the logits of all rows, and the tokens of embeddings.
        prompt_changed: whether the tensor with the prompt was written to.
        drew_numbers: whether random numbers were drawn while it ran.
        hidden: last hidden states of the right text, (p + n - 1, width).
        kept: what the cache held from the call before, if it should go on from there.
    """

    reference: Reference
    run: Run
    watch: Watch
    out: object
    error: BaseException | None = None
    prompt_changed: bool = False
    drew_numbers: bool = False
    hidden: Tensor | None = None
    kept: Kept | None = None

    @property
    def has_ids(self) -> bool:
        """Whether it returned token ids, (1, any number)."""
        out = self.out
        if not isinstance(out, torch.Tensor) or out.dtype not in WHOLE_NUMBERS or out.is_meta:
            return False
        return out.ndim == 2 and out.shape[0] == 1

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
        steps, reach = [], self.kept.n_reusable if self.kept else 0
        for step in self.run:
            steps.append(StepEvidence(self, step, reach))
            if steps[-1].is_right:
                reach = max(reach, steps[-1].right_end)
        return steps

    @cached_property
    def right_steps(self) -> list[StepEvidence]:
        return [step for step in self.steps if step.is_right]

    @cached_property
    def n_reused(self) -> int:
        """How many tokens of the prompt it didn't compute, because its cache held them."""
        rows = {position for step in self.right_steps for position in step.right_rows}
        return self.reference.n_prompt - len(rows & {*range(self.reference.n_prompt)})

    @property
    def had_no_chance(self) -> bool:
        """Whether what its last step was fed could still have been taken back, when it raised."""
        step = self.culprit
        is_last = step is not None and step.index == len(self.steps) - 1
        return is_last and step.held == step.reach and not step.entries.trouble

    @cached_property
    def is_supported(self) -> bool:
        """Whether each right token that it returned was chosen by a row with the right past."""
        rows = {position for step in self.right_steps for position in step.right_rows}
        rows |= {*range(self.kept.n_common)} if self.kept else set()  # the call before had these
        return rows >= set(range(self.reference.n_prompt - 1, self.n_equal - 1))

    @cached_property
    def culprit(self) -> StepEvidence | None:
        """The first step that went wrong; None if all that counts is right."""
        for step in self.steps:
            if step.is_comparable and step.entries.trouble:
                return self._find_wrong_choice(self._find_stray(step) or step)
        for i, step in enumerate(self.steps):
            if step.is_comparable and (not step.n_right or step.kept_a_stray):
                went_on = any(s.held >= step.reach for s in self.right_steps if s.index > i)
                if not went_on:  # else it was tried, and taken back
                    return step
        return None

    def _find_wrong_choice(self, step: StepEvidence) -> StepEvidence:
        """The first step after the last right one that was fed nothing right, and wasn't a try: it
        came after less than had been fed, or what it was fed was returned. This step, if none."""
        found = step
        for earlier in step.before():
            if earlier.is_right:
                break
            went_back = earlier.held < earlier.reach
            was_chosen = earlier.was_chosen(earlier.held, earlier.fed[0])
            if earlier.is_comparable and not earlier.n_right and (went_back or was_chosen):
                found = earlier
        return found

    def _find_stray(self, step: StepEvidence) -> StepEvidence | None:
        """The step that was fed another text, which the cache still held in this one.

        What it held is right up to there, and no step in between went past it with the right text.
        """
        for stray in step.before():
            if stray.is_right and stray.right_end >= step.held:
                return None
            wrong_from = step.entries.position
            is_held = wrong_from is not None and step.held > stray.right_end
            if stray.n_stray and is_held and wrong_from >= stray.right_end:
                between = self.steps[stray.index + 1 : step.index]
                went_on = any(s.is_right and s.right_end > stray.right_end for s in between)
                return None if went_on else stray
        return None

    def compare_entries(self, *, only_right: bool) -> Comparison:
        """Keys and values of the steps, as far as they are of the right text."""
        whole = Comparison(self.reference.gate)
        for step in self.right_steps if only_right else self.steps:
            is_culprit = not only_right and step is self.culprit
            part = step.compare_entries(self.n_equal) if is_culprit else step.entries
            _merge(whole, part)
        return whole

    @property
    def steps_with_logits(self) -> list[int]:
        """The steps of which a row with the right past was compared."""
        return [number for number, step in enumerate(self.steps) if step.logits.count]

    def compare_logits(self, *, only_right: bool) -> Comparison:
        """The logits of every row with the right past, as far as they were seen."""
        whole = Comparison(self.reference.gate)
        for step in self.right_steps if only_right else self.steps:
            _merge(whole, step.logits)
        return whole


def read_ids(out, expected: Tensor, n_prompt: int):
    """Token ids as a tensor, from an array or a list too; anything else as it came.

    One axis is enough where it can only be the whole text: it begins with the prompt, or has the
    expected length.
    """
    ids = to_tensor(out)
    if ids is None or ids.dtype not in WHOLE_NUMBERS or ids.is_meta:
        return out
    is_text = ids.shape == expected.shape[1:]
    is_text = is_text or torch.equal(ids[:n_prompt].cpu().long(), expected[0, :n_prompt].cpu())
    return ids[None] if ids.ndim == 1 and is_text else ids


def _merge(whole: Comparison, part: Comparison):
    whole.gap, whole.count = max(whole.gap, part.gap), whole.count + part.count
    if whole.step is None:
        whole.step, whole.layer, whole.position = part.step, part.layer, part.position
        whole.trouble = part.trouble
