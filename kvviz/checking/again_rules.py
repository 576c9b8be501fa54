"""The rules for tokens that were fed although the cache held them already.

Each looks at a step of which those before are right, and returns a cause or None.
"""

from __future__ import annotations

from kvviz.checking.guess_passes import find_guessing
from kvviz.checking.step_evidence import StepEvidence


def whole_sequence_fed(step: StepEvidence):
    """The text from its first token on, after a cache that holds it."""
    n, reach = len(step.fed), step.reach
    if n > reach == step.held > 0 and step.fed[:reach] == step.text[:reach]:
        return step.cause("whole sequence fed", f"the cache held {step.held} and you fed {n}")


def fed_twice(step: StepEvidence):
    """Tokens as they stand in the text, all of them held already.

    One token alone could also be a wrong choice: only if it is the latest, and wasn't returned.
    """
    if step.held != step.reach:
        return None
    if step.fed == step.text[: step.held][-1:] and step.loop.returned(step.held) != step.fed[0]:
        token = repr(step.label(step.fed[0]))
        return step.cause("fed twice", f"you fed {token} again, and the cache already held it")
    if step.n_right:  # the newest token, and guesses that were looked up in the text
        return None
    start, n = _find_in_text(step), len(step.fed)
    if start is None or start + n > step.held:
        return None
    says = f"you fed {n} tokens, positions {start} to {start + n - 1} of the text, and the cache "
    return step.cause("fed twice", f"{says}already held them")


def token_fed_twice(step: StepEvidence):
    """Several tokens as they stand in the text: the first of them held already, the last new.

    Behind the first that is new, there may be guesses.
    """
    start, n = _find_in_text(step), len(step.fed)
    if start is None:
        start = _find_with_guesses(step)
    if start is None or step.held != step.reach or not start < step.held < start + n:
        return None
    again = step.held - start
    one = f"the first of them, {step.label(step.fed[0])!r}"
    these = one if again == 1 else f"the first {again} of them"
    return step.cause("token fed twice", f"you fed {n} tokens, and the cache already held {these}")


def _find_in_text(step: StepEvidence) -> int | None:
    """Where the tokens stand in the text, the latest place before what comes next.

    In a loop that guesses, another token that was returned there was chosen, and its guesses may
    well be what followed it before.
    """
    n = len(step.fed)
    if n < 2 or _may_be_chosen(step) or (step.n_right and not _feeds_as_many_always(step)):
        return None
    starts = (s for s in reversed(range(step.held)) if step.text[s : s + n] == step.fed)
    return next(starts, None)


def _feeds_as_many_always(step: StepEvidence) -> bool:
    """Whether each step after the prompt is fed as many tokens, as a loop does that feeds the last
    few. Else a right token comes first, and guesses that were looked up in the text follow it."""
    n = len(step.fed)
    ends_with_new = step.fed == step.text[: step.held + 1][-n:]
    return ends_with_new and all(len(each.fed) == n for each in step.loop.steps[1:])


def _may_be_chosen(step: StepEvidence) -> bool:
    return find_guessing(step) is not None and step.loop.n_equal <= step.held


def _find_with_guesses(step: StepEvidence) -> int | None:
    """The same for the tokens up to the first that is new."""
    if step.n_right or _may_be_chosen(step):
        return None
    least = max(0, step.held + 1 - len(step.fed))
    starts = reversed(range(least, step.held))
    text, fed, new = step.text, step.fed, step.held + 1
    return next((s for s in starts if text[s:new] == fed[: new - s]), None)


def prompts_last_token_fed(step: StepEvidence):
    """The prompt's last token alone, which the loop didn't return: so it did not choose it."""
    last = step.loop.reference.n_prompt - 1
    is_last = step.fed == step.text[last : last + 1] and step.held == step.reach > last
    if is_last and step.loop.returned(step.held) != step.fed[0]:
        return step.cause("prompt's last token fed", f"{step.label(step.fed[0])!r} was fed again")
