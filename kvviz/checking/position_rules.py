"""The rule for a step that was fed the right tokens at positions that are not theirs."""

from __future__ import annotations

from kvviz.checking.step_evidence import StepEvidence


def wrong_position(step: StepEvidence):
    """The tokens are right, and the positions given to the model are not.

    One too many can be counted as held and as new only where something was held.
    """
    given = step.step.position_ids[0].tolist()
    if given == list(range(step.held, step.end)):
        return None
    if shift := _constant_shift(step):
        says = f"positions start at {shift} instead of 0, and count on from there"
        return step.cause("positions shifted", says)
    ahead = given[-1] - (step.end - 1)
    name = "position not advanced" if ahead < 0 else "position miscounted"
    name = "position counted twice" if ahead == 1 and step.held else name
    says = f"{step.label(step.fed[-1])!r} is at position {step.end - 1}, but was given {given[-1]}"
    return step.cause(name, says)


def _constant_shift(step: StepEvidence) -> int:
    """By how much every position of the whole loop is too high; 0 if not all by the same."""
    steps = step.loop.steps
    shifts = {
        position - right
        for each in steps
        for right, position in enumerate(each.step.position_ids[0].tolist(), each.held)
    }
    is_whole = not steps[0].held and len(steps) > 1 and len(shifts) == 1
    return max(0, *shifts) if is_whole else 0
