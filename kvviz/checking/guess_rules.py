"""The rules that name a mistake in a loop that guesses, and takes back what turned out wrong.

The bonus token is the model's own next token after the accepted guesses. Where the pass before was
right, what the cache holds next, what is fed next, and what was returned tell what became of it.
"""

from __future__ import annotations

from kvviz.checking.guess_passes import (
    count_accepted,
    find_guessing,
    has_cropped,
    has_guessed,
    is_guessing,
    list_choices,
    list_kept,
)
from kvviz.checking.step_evidence import StepEvidence
from kvviz.words import pluralize

# -- what was taken out of the cache ---------------------------------------------------------------


def cropped_too_many(step: StepEvidence):
    """Fewer held than were right, and the loop goes on behind them.

    An older cache has the length of one, so it has to be seen elsewhere, too, that part of a pass
    was kept.
    """
    before = find_guessing(step)
    if before is None or step.n_right or not before.held <= step.held < step.reach:
        return None
    if step.fed[0] not in step.text[step.reach : step.reach + 2]:
        return None
    if before.held == step.held and not has_cropped(step):
        return None
    lost = step.reach - step.held
    says = f"the cache held {step.held}, after {step.reach} right tokens had been fed: "
    says += f"{pluralize(lost, 'right token')} left it with the wrong guesses"
    return step.cause("cropped too many", f"{says}, and {_was(lost)} not fed again")


def cropped_too_few(step: StepEvidence):
    """Wrong guesses of which some were taken out; or none, though the loop does take out some."""
    after, wrong = _find_holder(step), step.end - step.right_end
    if not _has_wrong_guess(step) or after is None:
        return None
    left = after.held - step.right_end
    if left < wrong or has_cropped(step):
        says = f"{_guessed(step)}. {pluralize(wrong, 'guess', 'guesses')} turned out wrong, and "
        says += f"only {wrong - left} of them left the cache" if left < wrong else "stayed"
        return step.cause("cropped too few", says)


def wrong_guess_kept(step: StepEvidence):
    """The right token, and after it others that the model did not choose."""
    if _has_wrong_guess(step):
        return step.cause("wrong guess kept", f"{_guessed(step)}, and the guess was kept")


def _has_wrong_guess(step: StepEvidence) -> bool:
    return bool(step.n_right and step.n_stray and step.held == step.reach)


def _find_holder(step: StepEvidence) -> StepEvidence | None:
    """The first later step that held more than what was right."""
    later = step.loop.steps[step.index + 1 :]
    return next((each for each in later if each.held > step.right_end), None)


def _guessed(step: StepEvidence) -> str:
    at = step.right_end
    came, right = (repr(step.label(token)) for token in (step.fed[step.n_right], step.text[at]))
    return f"{came} was fed at position {at} as a guess, but {right} had the highest score"


def _was(n: int) -> str:
    return "was" if n == 1 else "were"


# -- which guesses were accepted -------------------------------------------------------------------


def guess_compared_with_the_wrong_row(step: StepEvidence):
    """In each pass as many were kept as are the choice of their own row, one row too far on."""
    passes = [(one, kept - 1) for one, kept in list_kept(step) if 0 < kept <= len(one.fed)]
    by_own = [count_accepted(one, 1) == kept for one, kept in passes]
    if not _has_wrong_guess(step) or len(passes) < 3 or not all(by_own):
        return None
    if step.n_right - 1 < count_accepted(step, 1):
        says = f"{_guessed(step)}. It was accepted, as is each guess that the model would repeat: "
        says += "it was compared with the choice of its own row"
        return step.cause("guess compared with the wrong row", says)


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
    before = _find_ended(step)
    if before is None or not before.n_stray or step.loop.returned(step.held) != step.fed[0]:
        return None
    if step.fed[0] == before.fed[before.n_right] and not _is_of_other_rows(step, before):
        return step.cause("wrong guess accepted", f"{_guessed(before)}, and the guess was accepted")


def _find_ended(step: StepEvidence) -> StepEvidence | None:
    """The pass with guesses of which the cache holds just what was right, if none of what this
    step was fed is."""
    before = find_guessing(step)
    is_whole = before is not None and step.held == step.reach == before.right_end
    return before if is_whole and not step.n_right else None


# -- the bonus token -------------------------------------------------------------------------------


def bonus_token_from_the_wrong_row(step: StepEvidence):
    """What follows the accepted guesses is the choice of another row; so it is later on."""
    before = _find_ended(step)
    if before is None or step.loop.drew_numbers or step.loop.returned(step.held) != step.fed[0]:
        return None
    if _is_of_other_rows(step, before):
        row, right = list_choices(before).index(step.fed[0]), before.n_right - 1
        came, best = (repr(step.label(token)) for token in (step.fed[0], step.text[step.held]))
        says = f"you fed {came}, but {best} had the highest score; it is the best of row {row}, "
        return step.cause(
            "bonus token from the wrong row", f"{says}and the last accepted token is in row {right}"
        )


def _is_of_other_rows(step: StepEvidence, before: StepEvidence) -> bool:
    """Whether the newest token is a choice of the pass before, here and from here on, and at least
    twice."""
    later = step.loop.steps[step.index :]
    pairs = [(before, step), *zip(later, later[1:], strict=False)]
    pairs = [(one, after) for one, after in pairs if len(one.fed) > 1]
    return len(pairs) > 1 and all(after.fed[0] in list_choices(one) for one, after in pairs)


def bonus_token_missing(step: StepEvidence):
    """It was never fed: instead, the token before it was fed again, or guesses that follow it."""
    at, token, n_prompt = step.held, step.fed[0], step.loop.reference.n_prompt
    if at != step.reach or step.n_right or at < n_prompt:
        return None
    bonus, came = repr(step.label(step.text[at])), repr(step.label(token))
    says = f"{bonus}, the model's own choice for position {at}, was not fed: you fed "
    if _find_ended(step) and token == step.text[at - 1] and step.loop.returned(at) != token:
        return step.cause("bonus token missing", f"{says}{came} again, which was held already")
    guessed = len(step.fed) > 1 or find_guessing(step)
    if guessed and [token] == step.text[at + 1 : at + 2] and step.loop.returned(at) != token:
        return step.cause("bonus token missing", f"{says}{came}, which comes after it")


def bonus_token_written_twice(step: StepEvidence):
    """It was fed in a pass of its own, and then again in front of the next guesses."""
    at, token = step.held, step.fed[0]
    before = next(step.before(), None)
    if before is None or at != step.reach or step.n_right or not has_guessed(before):
        return None
    is_own = before.is_right and before.fed == [token] and before.right_end == at
    if is_own and step.loop.returned(at) != token:
        says = f"{step.label(token)!r}, the model's own choice for position {at - 1}, was fed again"
        return step.cause("bonus token written twice", f"{says}, and the cache already held it")


def find_guess_loop_end(loop):
    """What kept the text of a loop that guesses from growing, where that can be told."""
    step = loop.culprit
    return step and bonus_token_missing(step)


CACHE_RULES = (bonus_token_missing, bonus_token_written_twice, cropped_too_many)

CHOICE_RULES = (
    guesses_accepted_unchecked,
    guess_compared_with_the_wrong_row,
    bonus_token_from_the_wrong_row,
    wrong_guess_accepted,
    cropped_too_few,
    wrong_guess_kept,
)
