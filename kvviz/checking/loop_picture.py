"""What the picture of a loop's verdict shows."""

from __future__ import annotations

from functools import partial

from kvviz.checking.loop_evidence import LoopEvidence
from kvviz.checking.sides import see_right, see_step
from kvviz.checking.step_evidence import StepEvidence
from kvviz.checking.verdict import Verdict
from kvviz.checking.verdict_picture import Mistake, Strip, keep_mistake, keep_strip


def find_loop_picture(loop: LoopEvidence, verdict: Verdict) -> Mistake | Strip | None:
    """The step that the verdict speaks of, if something in it differs; else the first steps."""
    if not verdict.passed and (step := _find_step(loop, verdict)):
        if found := _compare(loop, step, verdict):
            return found
    cuts = [{n: partial(see_step, step, n) for n in step.layers} for step in loop.run]
    return keep_strip(cuts, loop.run.rows)


def _find_step(loop: LoopEvidence, verdict: Verdict) -> StepEvidence | None:
    """The step that went wrong; of a loop that feeds much again, the last that did."""
    if verdict.step is not None:
        return loop.steps[verdict.step]
    if verdict.cause == "most fed again":
        again = [step for step in loop.steps if step.held and step.held < step.reach]
        return again[-1] if again else None
    return None


def _compare(loop: LoopEvidence, step: StepEvidence, verdict: Verdict) -> Mistake | None:
    rows, layers = _find_expected_rows(step), step.step.layers
    if rows.stop > loop.reference.whole.fed:
        return None
    if verdict.layer in layers:
        layers = (verdict.layer, *layers)
    pairs = (
        (
            see_step(step.step, layer),
            see_right(loop.reference.whole, layer, rows, step.index, loop.run.label),
        )
        for layer in layers
    )
    return keep_mistake(pairs, loop.reference.gate)


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
