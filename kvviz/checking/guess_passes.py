"""Passes that were fed guesses: what the model said of each, and what was kept of it.

A pass of several rows past the prompt carries guesses behind the newest token. How many of them are
right is told in two ways: by the right text, as far as the past is right, and by the choices of the
pass's own rows, whatever its past.
"""

from __future__ import annotations

from collections.abc import Iterator

from kvviz.checking.compare import count_common
from kvviz.checking.step_evidence import StepEvidence


def is_guessing(step: StepEvidence) -> bool:
    """Whether it was fed tokens that nobody had chosen yet, after some that were right."""
    n_prompt = step.loop.reference.n_prompt
    known = step.reach + 1 if step.reach >= n_prompt else n_prompt
    return step.n_right > 0 and step.held <= step.reach and step.end > known


def find_guessing(step: StepEvidence) -> StepEvidence | None:
    """The pass with guesses that computed the latest right tokens before this step; None if the
    latest was another kind of pass."""
    latest = find_latest(step)
    return latest if latest and is_guessing(latest) else None


def find_latest(step: StepEvidence) -> StepEvidence | None:
    """The pass that computed the latest right tokens before this step."""
    passes = (one for one in step.before() if one.is_right and one.right_end == step.reach)
    return next(passes, None)


def find_ended(step: StepEvidence) -> StepEvidence | None:
    """The pass with guesses of which the cache holds just what was right, if none of what this
    step was fed is."""
    before = find_guessing(step)
    is_whole = before is not None and step.held == step.reach == before.right_end
    return before if is_whole and not step.n_right else None


def find_holder(step: StepEvidence) -> StepEvidence | None:
    """The first later step that held more than what was right."""
    later = step.loop.steps[step.index + 1 :]
    return next((each for each in later if each.held > step.right_end), None)


def has_guessed(step: StepEvidence) -> bool:
    """Whether this step or one before it was fed guesses."""
    return is_guessing(step) or any(is_guessing(earlier) for earlier in step.before())


def list_choices(step: StepEvidence) -> list[int | None]:
    """The token with the highest score in each row; None for a row that wasn't seen."""
    every = range(len(step.fed))
    return [int(step.rows[row].argmax()) if row in step.rows else None for row in every]


def count_accepted(step: StepEvidence, shift: int = 0) -> int:
    """How many guesses are the choice of the row before their own, counted from the first.

    With a shift, of the row that many rows further on.
    """
    choices, guesses = list_choices(step), step.fed[1:]
    return count_common(guesses, choices[shift:])


def count_matches(step: StepEvidence) -> int:
    """How many guesses are the choice of the row before their own, also behind a wrong one."""
    pairs = zip(step.fed[1:], list_choices(step), strict=False)
    return sum(guess == choice for guess, choice in pairs)


def list_kept(step: StepEvidence) -> Iterator[tuple[StepEvidence, int]]:
    """Each pass of several rows past the prompt in the whole loop, with how many of its rows the
    next step still held; fewer than none if older ones are gone, too."""
    steps = step.loop.steps
    for one, after in zip(steps, steps[1:], strict=False):
        if len(one.fed) > 1 and one.held >= step.loop.reference.n_prompt:
            yield one, after.held - one.held


def has_cropped(step: StepEvidence) -> bool:
    """Whether after some pass a part of its rows was taken out, and a part was kept: then it was
    no older cache that was passed on."""
    return any(0 < kept < len(one.fed) for one, kept in list_kept(step))
