"""The rules for a step that was fed the right tokens at positions that are not theirs."""

from __future__ import annotations

from kvviz.checking.guess_passes import find_guessing
from kvviz.checking.step_evidence import StepEvidence
from kvviz.words import pluralize


def positions_not_taken_back(step: StepEvidence):
    """They go on as if wrong guesses were still held, all of them or some."""
    before, first = _find_taken_back(step)
    if before and 0 < first - step.held <= before.end - step.held:
        wrong = pluralize(before.end - step.held, "wrong guess", "wrong guesses")
        says = f"{wrong} left the cache, which held {step.held} then, but the positions went on "
        return step.cause("positions not taken back", f"{says}from {first}")


def positions_taken_back_too_far(step: StepEvidence):
    """They go on from a guess that was accepted, or such guesses are never counted.

    A counter that never moves has another name.
    """
    before, first = _find_taken_back(step)
    if before and first < step.held and _moves(before, step):
        says = f"the cache held {step.held}, all of them right, but the positions went on from "
        return step.cause("positions taken back too far", f"{says}{first}")


def _moves(before: StepEvidence, step: StepEvidence) -> bool:
    """Whether the position of the first token fed rises, in this step or a later one."""
    firsts = [_list_positions(each)[0] for each in (before, *step.loop.steps[step.index :])]
    return firsts[1] >= firsts[0] < max(firsts)


def _find_taken_back(step: StepEvidence) -> tuple[StepEvidence | None, int]:
    """The pass whose right guesses were just kept, and the position given to the first token after
    it; None for the pass if there is none, or the positions don't count on."""
    given, before = _list_positions(step), find_guessing(step)
    counts_on = given == list(range(given[0], given[0] + len(given)))
    is_kept = before is not None and step.held == before.right_end
    return before if is_kept and counts_on else None, given[0]


def _list_positions(step: StepEvidence) -> list[int]:
    return step.step.position_ids[0].tolist()


def wrong_position(step: StepEvidence):
    """The tokens are right, and the positions given to the model are not.

    One too many can be counted as held and as new only where something was held.
    """
    given = _list_positions(step)
    if given == list(range(step.held, step.end)):
        return None
    if shift := _constant_shift(step):
        says = f"positions start at {shift} instead of 0, and count on from there"
        return step.cause("positions shifted", says)
    ahead = given[-1] - (step.end - 1)
    name = "position not advanced" if ahead < 0 else "position miscounted"
    is_one_more = given == list(range(step.held + 1, step.end + 1))
    name = "position counted twice" if is_one_more and step.held else name
    says = f"{step.label(step.fed[-1])!r} is at position {step.end - 1}, but was given {given[-1]}"
    return step.cause(name, says)


def _constant_shift(step: StepEvidence) -> int:
    """By how much every position of the whole loop is too high; 0 if not all by the same."""
    steps = step.loop.steps
    shifts = {
        position - right
        for each in steps
        for right, position in enumerate(_list_positions(each), each.held)
    }
    is_whole = not steps[0].held and len(steps) > 1 and len(shifts) == 1
    return max(0, *shifts) if is_whole else 0


POSITION_RULES = (positions_not_taken_back, positions_taken_back_too_far, wrong_position)
