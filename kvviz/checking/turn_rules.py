"""The rules for a loop that is called again and finds its cache: what its first pass was fed.

They look only at that pass, and only where it is wrong; `kept_cache_not_used` looks at right ones.
"""

from __future__ import annotations

from dataclasses import replace

from kvviz.checking.causes import Cause, first_cause
from kvviz.checking.step_evidence import StepEvidence
from kvviz.words import pluralize

FEED_THE_REST = (
    "The cache already holds the beginning of this text. Count how many tokens both begin with, "
    "and feed only what comes after them: ids[:, n:]."
)
FEED_THE_LAST = (
    "The cache already holds all of this text. Crop its last token, cache.crop(-1), and feed that "
    "token again: its row gives the next token."
)


def find_turn_cause(step: StepEvidence) -> Cause | None:
    """What is wrong with a call's first pass over a cache that was kept; None for any other."""
    kept, before = step.loop.kept, [*step.before()]
    if kept is None or any(earlier.is_right for earlier in before):
        return None
    return first_cause(TURN_RULES, step)


def nothing_fed(loop):
    """A pass over no token, and nothing wrong before it."""
    if getattr(loop.error, "cause", "") != "nothing fed" or loop.culprit:
        return None
    kept, says = loop.kept, "your loop called the model with no token"
    if kept is not None and not loop.run and kept.n_common == len(kept.new):
        says += f": the cache already held all {pluralize(len(kept.new), 'token')} of the text"
    return Cause("nothing fed", says)


def kept_cache_not_used(loop):
    """Each row of the text was computed, although the cache held the first of them."""
    kept = loop.kept
    if kept is None or not kept.is_expected or loop.n_reused:
        return None
    rows, needed = len(kept.new), len(kept.new) - kept.n_reusable
    was = "was" if needed == 1 else "were"
    first = next((step.index for step in loop.right_steps), None)
    says = f"the kept cache wasn't used: {pluralize(rows, 'row')}, {needed} {was} needed"
    return Cause("kept cache not used", says, first)


# -- what the cache held ---------------------------------------------------------------------------


def edited_text_not_cropped(step: StepEvidence):
    """More held than both texts have in common, so tokens of the old text are read."""
    kept, held = step.loop.kept, step.held
    common = kept.n_common
    if not common < held <= len(kept.text):
        return None
    says = f"the cache held {pluralize(held, 'token')}, and only the first {common} "
    says += "is in the new text" if common == 1 else "are in the new text"
    says = says if common else f"the cache held {pluralize(held, 'token')} of the old text"
    came = step.label(kept.text[common])
    if common == len(kept.new):
        says = f"the new text has {pluralize(common, 'token')}, and the cache still held {held}"
    else:
        says += f": {came!r} at position {common} should be {step.label(kept.new[common])!r}"
    if held < len(kept.text):
        says += f". {len(kept.text) - held} had been cropped, {len(kept.text) - common} had to be"
    return step.cause("edited text not cropped", says)


def wrong_guesses_kept(step: StepEvidence):
    """More held than the first call's text, and that call ended with guesses that were wrong."""
    kept = step.loop.kept
    if kept.has_guesses and step.held > len(kept.text):
        says = "the last guesses of the first call turned out wrong, and were still held"
        return step.cause("wrong guess kept", says)


def cache_not_kept(step: StepEvidence):
    """Nothing held, and not the text from its start: it was meant to go on."""
    n = len(step.fed)
    if step.held == 0 and step.loop.kept.is_expected and step.n_right < n:
        says = f"you fed {pluralize(n, 'token')} and the cache held nothing, after "
        says += f"{pluralize(len(step.loop.kept.text), 'token')} in the first call"
        return step.cause("cache not kept", says)


# -- what was fed ----------------------------------------------------------------------------------


def last_token_missing(step: StepEvidence):
    """All that follows the first turn's last token, which was chosen and never fed."""
    kept, held = step.loop.kept, step.held
    if held != len(kept.text) or held != kept.n_first_turn - 1 or _find_skipped(step) != 1:
        return None
    last = step.label(step.text[held])
    says = f"the cache held {held} and you fed {len(step.fed)}, without {last!r} at position {held}"
    return step.cause("turn's last token missing", says)


def new_tokens_left_out(step: StepEvidence):
    """What the text ends with, and not the new tokens before it."""
    if n := _find_skipped(step):
        first = f"{step.label(step.text[step.held])!r} at position {step.held}"
        left = f"without {first}" if n == 1 else f"without the {n} before these, from {first} on"
        says = f"the cache held {step.held} and you fed {pluralize(len(step.fed), 'token')}, {left}"
        return step.cause("new tokens left out", says)


def _find_skipped(step: StepEvidence) -> int:
    """How many tokens, from what is held on, were left out; 0 if it isn't so."""
    end = step.loop.reference.n_prompt
    start = end - len(step.fed)
    is_rest = start > step.held and step.text[start:end] == step.fed
    return start - step.held if is_rest and not step.n_right else 0


def held_tokens_fed(step: StepEvidence):
    """The text from a token on that the cache already held."""
    n, held, end = len(step.fed), step.held, step.loop.reference.n_prompt
    starts = (end - n, *reversed(range(held)))
    start = next((s for s in starts if 0 <= s < held and step.text[s : s + n] == step.fed), None)
    if start is None or step.n_right == n:
        return None
    name = "whole sequence fed" if start == 0 else "token fed twice"
    says = f"the cache held {held} and you fed {n}: the whole text, on top of its beginning"
    if start:
        again, first = min(n, held - start), repr(step.label(step.fed[0]))
        these = first if n == 1 else f"the first {again} of these, from {first} on,"
        these = f"the first of these, {first}," if again == 1 < n else these
        says = f"the cache held {held} and you fed {n}, and it already held {these}".rstrip(",")
    advice = FEED_THE_LAST if held >= end else FEED_THE_REST
    return replace(step.cause(name, says), instead=advice)


def positions_restart(step: StepEvidence):
    """The right tokens, counted from 0 again."""
    given, n = step.step.position_ids[0].tolist(), len(step.fed)
    if step.held and step.n_right == n and given == list(range(n)):
        says = f"{step.label(step.fed[0])!r} is at position {step.held}, but was given 0"
        return step.cause("position restarts", says)


TURN_RULES = (
    wrong_guesses_kept,
    edited_text_not_cropped,
    cache_not_kept,
    last_token_missing,
    new_tokens_left_out,
    held_tokens_fed,
    positions_restart,
)
