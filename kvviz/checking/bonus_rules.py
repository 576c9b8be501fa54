"""The rules for the bonus token: the model's own next token after the guesses it accepted.

It belongs in the text once, and is fed once, in front of the next guesses.
"""

from __future__ import annotations

from kvviz.checking.causes import Cause
from kvviz.checking.guess_passes import (
    find_ended,
    find_guessing,
    find_holder,
    has_guessed,
    is_guessing,
    list_choices,
    list_kept,
)
from kvviz.checking.step_evidence import StepEvidence
from kvviz.checking.watchdog import TimeLimitReached

# -- how it was fed --------------------------------------------------------------------------------


def bonus_token_from_the_wrong_row(step: StepEvidence):
    """What follows the accepted guesses is the choice of another row; so it is later on."""
    before = find_ended(step)
    if before is None or step.loop.drew_numbers or not step.was_chosen(step.held, step.fed[0]):
        return None
    if is_of_other_rows(step, before):
        row, right = list_choices(before).index(step.fed[0]), before.n_right - 1
        came, best = (repr(step.label(token)) for token in (step.fed[0], step.text[step.held]))
        says = f"you fed {came}, but {best} had the highest score; it is the best of row {row}, "
        return step.cause(
            "bonus token from the wrong row", f"{says}and the last accepted token is in row {right}"
        )


def is_of_other_rows(step: StepEvidence, before: StepEvidence) -> bool:
    """Whether the newest token is a choice of the pass before, here and from here on, and at least
    twice."""
    later = step.loop.steps[step.index :]
    pairs = [(before, step), *zip(later, later[1:], strict=False)]
    pairs = [(one, after) for one, after in pairs if len(one.fed) > 1]
    return len(pairs) > 1 and all(after.fed[0] in list_choices(one) for one, after in pairs)


def bonus_token_missing(step: StepEvidence):
    """It was never fed: instead, the token before it was fed again, or guesses that follow it."""
    at, token, n_prompt = step.held, step.fed[0], step.loop.reference.n_prompt
    if at != step.reach or step.n_right or at < n_prompt or step.loop.returned(at) == token:
        return None
    bonus, came = repr(step.label(step.text[at])), repr(step.label(token))
    says = f"{bonus}, the model's own choice for position {at}, was not fed: you fed "
    if find_ended(step) and token == step.text[at - 1] and not _has_it_behind(step):
        return step.cause("bonus token missing", f"{says}{came} again, which was held already")
    guessed = len(step.fed) > 1 or find_guessing(step)
    if guessed and [token] == step.text[at + 1 : at + 2]:
        return step.cause("bonus token missing", f"{says}{came}, which comes after it")


def _has_it_behind(step: StepEvidence) -> bool:
    """Whether the bonus token itself comes behind what was fed again, and not only a guess of it:
    a text without it differs there, or never grows."""
    is_there = step.fed[1:2] == [step.text[step.held]]
    is_returned = step.loop.returned(step.held) in (None, step.text[step.held])
    return is_there and is_returned and not isinstance(step.loop.error, TimeLimitReached)


def bonus_token_fed_twice(step: StepEvidence):
    """It was fed in a pass of its own, and then again in front of the next guesses."""
    at, token = step.held, step.fed[0]
    before = next(step.before(), None)
    if before is None or at != step.reach or step.n_right or not has_guessed(before):
        return None
    is_own = before.is_right and before.fed == [token] and before.right_end == at
    if is_own and step.loop.returned(at) != token:
        says = f"{step.label(token)!r}, the model's own choice for position {at - 1}, was fed again"
        return step.cause("bonus token written twice", f"{says}, and the cache already held it")


def bonus_token_fed_twice_at_once(step: StepEvidence):
    """Each pass begins with a token and the same again, and here both stayed in the cache."""
    passes, later = [*list_kept(step)], find_holder(step)
    always = all(one.fed[0] == one.fed[1] for one, _ in passes)
    if step.n_right == 1 and step.n_stray and later and always and len(passes) > 1:
        token, at = repr(step.label(step.fed[0])), step.held
        says = f"{token} was fed twice in one pass, at positions {at} and {at + 1}, and both stayed"
        return step.cause("bonus token written twice", f"{says} in the cache")


# -- how it was returned ---------------------------------------------------------------------------


def bonus_token_not_returned(loop):
    """All that was fed is right, and the text returned is the right one without it."""
    if (at := _find_changed(loop, is_missing=True)) is not None:
        says = f"{_name(loop, at)}, the model's own choice for position {at}, is not in your text"
        return Cause("bonus token missing", f"{says}: it came after the accepted guesses")


def bonus_token_returned_twice(loop):
    """All that was fed is right, and the text returned is the right one with it twice."""
    if (at := _find_changed(loop, is_missing=False)) is not None:
        says = f"{_name(loop, at)}, the model's own choice for position {at}, is in your text twice"
        return Cause("bonus token written twice", says)


def _name(loop, position: int) -> str:
    return repr(loop.run.label(int(loop.reference.ids[0, position])))


def _find_bonus(loop) -> set[int]:
    """The positions of the tokens that follow what was accepted in each pass past the prompt; none
    if no pass was fed guesses."""
    right, found = loop.right_steps, set()
    for i, one in enumerate(right):
        after = right[i + 1] if i + 1 < len(right) else None
        rejects = after is not None and one.held < after.held < one.right_end
        if one.held >= loop.reference.n_prompt or is_guessing(one):
            found.add(after.held if rejects else one.right_end)
    return found if any(map(is_guessing, right)) else set()


def _find_changed(loop, *, is_missing: bool) -> int | None:
    """The first position at which the right text has a bonus token that the returned one lacks, or
    has twice; None if that alone does not explain what was returned.

    A token that repeats the one before it may be the other one's second copy, so it doesn't count.
    """
    right, bonus = loop.reference.ids[0].tolist(), _find_bonus(loop)
    places = {(0, None)}  # (how far into the right text, the first position that was changed)
    for token in loop.out[0].tolist() if bonus else ():
        reached = set()
        for at, changed in places:
            if right[at : at + 1] == [token] or at >= len(right):
                reached.add((at + 1, changed))
            if is_missing and at in bonus and right[at + 1 : at + 2] in ([], [token]):
                reached.add((at + 2, at if changed is None else changed))
            if (
                not is_missing
                and at - 1 in bonus
                and [token] == right[at - 1 : at] != right[at - 2 : at - 1]
            ):
                reached.add((at, at - 1 if changed is None else changed))
        places = reached
    changes = {changed for _, changed in places}
    return min(changes) if changes and None not in changes else None
