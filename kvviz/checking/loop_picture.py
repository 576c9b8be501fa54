"""What the picture of a loop's verdict shows."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from kvviz.checking.guess_passes import find_holder, has_guessed
from kvviz.checking.loop_evidence import LoopEvidence
from kvviz.checking.sides import see_right, see_step
from kvviz.checking.step_evidence import StepEvidence
from kvviz.checking.verdict import Verdict
from kvviz.checking.verdict_picture import Mistake, Strip, keep_mistake, keep_strip
from kvviz.words import pluralize

KEPT = ("wrong guess kept", "cropped too few")
ACCEPTED = (
    "guesses accepted unchecked",
    "guess compared with the wrong row",
    "wrong guess accepted",
)


def find_loop_picture(loop: LoopEvidence, verdict: Verdict) -> Mistake | Strip | None:
    """The step that the verdict speaks of, if something in it differs; else the first steps."""
    if not verdict.passed and (step := _find_step(loop, verdict)):
        if found := _compare(loop, step, verdict):
            return found
    cuts = [{n: partial(see_step, step, n) for n in step.layers} for step in loop.run]
    return keep_strip(cuts, loop.run.rows)


def _find_step(loop: LoopEvidence, verdict: Verdict) -> StepEvidence | None:
    """The step that went wrong; of a loop that feeds much again, the last that did; where guesses
    stayed in the cache, the one that found them there."""
    if verdict.step is not None:
        step = loop.steps[verdict.step]
        return find_holder(step) or step if verdict.cause in KEPT else step
    if verdict.cause == "most fed again":
        again = [step for step in loop.steps if step.held and step.held < step.reach]
        return again[-1] if again else None
    return None


def _compare(loop: LoopEvidence, step: StepEvidence, verdict: Verdict) -> Mistake | None:
    n_shown = _count_shown(step, verdict)
    rows, layers = _find_expected_rows(step), step.step.layers
    if verdict.cause in ACCEPTED:
        rows = range(rows.start, step.held + n_shown)
    if rows.stop > loop.reference.whole.fed:
        return None
    if verdict.layer in layers:
        layers = (verdict.layer, *layers)
    pairs = (
        (
            see_step(step.step, layer).cut(n_shown),
            see_right(loop.reference.whole, layer, rows, step.index, loop.run.label),
        )
        for layer in layers
    )
    found, n_hidden = keep_mistake(pairs, loop.reference.gate), len(step.fed) - n_shown
    note = f"{pluralize(n_hidden, 'guess', 'guesses')} not shown" if n_hidden > 0 else ""
    return found and replace(found, note=note)


def _count_shown(step: StepEvidence, verdict: Verdict) -> int:
    """How many of its rows are shown: of guesses only those that are right, since to feed others
    is no mistake, and the first wrong one where it was accepted."""
    if not has_guessed(step) and verdict.cause != "bonus token missing":
        return len(step.fed)
    return max(1, step.n_right) + (verdict.cause in ACCEPTED and step.n_right > 0)


def _find_expected_rows(step: StepEvidence) -> range:
    """The rows of the right text that this step should have computed: what is left of the prompt,
    or one. As many as it was fed if it goes on, rightly, with a piece."""
    start, n_prompt = step.reach, step.loop.reference.n_prompt
    end, fed_until = max(start + 1, n_prompt), start + len(step.fed)
    if step.held != start:
        return range(start, end)
    if fed_until < n_prompt:
        return range(start, fed_until)
    return range(start, max(end, step.right_end) if step.n_right > 1 else end)
