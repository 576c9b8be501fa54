"""The rules that name a mistake in a loop that guesses, and takes back what turned out wrong.

Where the pass before was right, it's told by what the cache holds next, and by what is fed and
returned. Where the same would be left by another mistake, the name covers both.
"""

from __future__ import annotations

from kvviz.checking.bonus_rules import (
    bonus_token_fed_twice,
    bonus_token_fed_twice_at_once,
    bonus_token_from_the_wrong_row,
    bonus_token_missing,
    is_of_other_rows,
)
from kvviz.checking.guess_passes import (
    count_accepted,
    find_ended,
    find_guessing,
    find_holder,
    find_latest,
    has_cropped,
    is_guessing,
    list_choices,
    list_kept,
)
from kvviz.checking.step_evidence import StepEvidence
from kvviz.words import pluralize

# -- what was taken out of the cache ---------------------------------------------------------------


def cropped_too_many(step: StepEvidence):
    """Fewer held than were right, and the loop goes on behind them.

    Where an older cache would hold as many, it has to be seen elsewhere, too, that part of a pass
    was kept.
    """
    before = find_latest(step)
    if before is None or step.n_right or not step.held < step.reach:
        return None
    is_single = before.held >= step.loop.reference.n_prompt and len(before.fed) == 1
    if not is_guessing(before) and not (is_single and any(list_kept(step))):
        return None
    if step.fed[0] not in step.text[step.reach : step.reach + 2]:
        return None
    lengths = {length for each in step.before() for length in (each.held, each.end)}
    could_be_older = step.held <= before.held and step.held in lengths
    if could_be_older and not (step.held == before.held and has_cropped(step)):
        return None
    lost = step.reach - step.held
    says = f"the cache held {step.held}, after {step.reach} right tokens had been fed: "
    says += f"{pluralize(lost, 'right token')} {_was(lost)} taken out, and not fed again"
    return step.cause("cropped too many", says)


def cropped_too_many_equal_tokens(loop):
    """The same where the token fed next repeats the one taken out: what was fed is right, as if it
    had been fed again, and the text has it once more."""
    at, text = loop.n_equal, loop.reference.ids[0].tolist()
    for step in loop.right_steps:
        before = find_guessing(step)
        lost = step.reach - step.held
        if before is None or lost <= 0 or at < step.reach or not has_cropped(step):
            continue
        if step.fed[0] == text[step.reach] and step.was_chosen(at, text[at - lost]):
            says = f"the cache held {step.held}, after {step.reach} right tokens had been fed, and "
            says += f"{step.label(step.fed[0])!r} came next: what was taken out is the same token"
            return step.cause("cropped too many", says)


def cropped_too_few(step: StepEvidence):
    """Wrong guesses of which some were taken out; or none, though the loop does take out some."""
    after, wrong = find_holder(step), step.end - step.right_end
    if not _has_wrong_guess(step) or after is None:
        return None
    left = after.held - step.right_end
    if left < wrong or has_cropped(step):
        many = pluralize(wrong, "guess", "guesses")
        which = f"only {wrong - left} of them left the cache" if left < wrong else "stayed"
        which = "all of them stayed" if left >= wrong > 1 else which
        says = f"{_guessed(step)}. {many} turned out wrong, and {which}"
        return step.cause("cropped too few", says)


def wrong_guess_kept(step: StepEvidence):
    """The right token, and after it others that the model did not choose."""
    if _has_wrong_guess(step):
        return step.cause("wrong guess kept", f"{_guessed(step)}, and the guess was kept")


def _has_wrong_guess(step: StepEvidence) -> bool:
    return bool(step.n_right and step.n_stray and step.held <= step.reach)


def _guessed(step: StepEvidence) -> str:
    at = step.right_end
    came, right = (repr(step.label(token)) for token in (step.fed[step.n_right], step.text[at]))
    return f"{came} was fed at position {at} as a guess, but {right} had the highest score"


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


# -- which guesses were accepted -------------------------------------------------------------------


def guess_compared_with_the_wrong_row(step: StepEvidence):
    """In each pass as many were kept as are the choice of their own row, one row too far on; and
    in one of them that is more than are right."""
    later = [one for one in step.loop.steps[step.index :] if _has_wrong_guess(one)]
    is_more = any(one.n_right - 1 < count_accepted(one, 1) for one in later)
    if _has_wrong_guess(step) and is_more and _is_compared_with_own_row(step):
        return step.cause("guess compared with the wrong row", _guessed(step) + _OF_OWN_ROW)


_OF_OWN_ROW = (
    ". It was compared with the choice of its own row, and so was accepted, as is each guess that "
    "the model would repeat"
)


def _is_compared_with_own_row(step: StepEvidence) -> bool:
    passes = [(one, kept - 1) for one, kept in list_kept(step) if 0 < kept <= len(one.fed)]
    return len(passes) > 2 and all(count_accepted(one, 1) == kept for one, kept in passes)


def rows_of_wrong_guesses_returned(loop):
    """After the last pass the text goes on with what the rows of wrong guesses chose."""
    step, at = loop.right_steps[-1] if loop.right_steps else None, loop.n_equal
    row = at - step.held - 1 if step else 0
    if step is None or not step.n_right <= row < len(step.fed) or not _has_wrong_guess(step):
        return None
    if not step.was_chosen(at, list_choices(step)[row]):
        return None
    if _is_compared_with_own_row(step):
        return step.cause("guess compared with the wrong row", _guessed(step) + _OF_OWN_ROW)
    says = f"{_guessed(step)}, and your text goes on with what the model chose after the guess"
    return step.cause("wrong guess accepted", says)


def guesses_accepted_unchecked(step: StepEvidence):
    """All that was fed stayed in the cache and was returned, and one of the guesses was wrong."""
    if not _has_wrong_guess(step) or not step.kept_a_stray:
        return None
    if all(_is_returned(one) and kept == len(one.fed) for one, kept in list_kept(step)):
        says = f"{_guessed(step)}, and the guess was accepted, as all the others were"
        return step.cause("guesses accepted unchecked", says)


def _is_returned(step: StepEvidence) -> bool:
    came = ((step.loop.returned(at), token) for at, token in enumerate(step.fed, step.held))
    return all(ours in (None, token) for ours, token in came)


def wrong_guess_accepted(step: StepEvidence):
    """A wrong guess was returned: it was fed and kept, or taken out and then fed as the newest."""
    if _has_wrong_guess(step) and step.kept_a_stray:
        says = f"{_guessed(step)}, and the guess was accepted"
        return step.cause("wrong guess accepted", says)
    before = find_ended(step)
    if before is None or not before.n_stray or not step.was_chosen(step.held, step.fed[0]):
        return None
    if step.fed[0] == before.fed[before.n_right] and not is_of_other_rows(step, before):
        return step.cause("wrong guess accepted", f"{_guessed(before)}, and the guess was accepted")


CACHE_RULES = (bonus_token_missing, bonus_token_fed_twice, cropped_too_many)

CHOICE_RULES = (
    guesses_accepted_unchecked,
    guess_compared_with_the_wrong_row,
    bonus_token_from_the_wrong_row,
    wrong_guess_accepted,
    bonus_token_fed_twice_at_once,
    cropped_too_few,
    wrong_guess_kept,
)
