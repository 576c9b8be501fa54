"""The rules that name what a step was fed wrongly, given that the steps before it are right.

Each looks at the evidence and returns a cause or None, and says what else would leave the same
trace: where something would, the name covers both. The list at the end says in which order.
"""

from __future__ import annotations

import torch

from kvviz.checking.again_rules import (
    fed_twice,
    prompts_last_token_fed,
    token_fed_twice,
    whole_sequence_fed,
)
from kvviz.checking.causes import Cause, first_cause
from kvviz.checking.columns import match_columns
from kvviz.checking.guess_rules import CACHE_RULES, CHOICE_RULES
from kvviz.checking.position_rules import POSITION_RULES
from kvviz.checking.step_evidence import StepEvidence
from kvviz.words import pluralize


def find_feeding_cause(step: StepEvidence) -> Cause | None:
    """What is wrong with the step. One with the right tokens can only have wrong positions, and so
    can one whose right tokens already left something else: then its guesses are not to blame."""
    is_fed_right = step.n_right and (not step.n_stray or step.entries.trouble)
    is_fed_right = is_fed_right and step.held <= step.reach
    return first_cause(POSITION_RULES if is_fed_right else FEEDING_RULES, step)


# -- the cache it was given ------------------------------------------------------------------------


def stale_cache(step: StepEvidence):
    """Before the first step of a call nothing can be held but an earlier text, or what this one
    begins with too, where that was to be kept."""
    kept = step.loop.kept
    if step.index == 0 and step.held > (kept.n_common if kept else 0):
        held = pluralize(step.held, "token")
        return step.cause("stale cache", f"the cache held {held} before the prompt was fed")


def cache_never_read(step: StepEvidence):
    """The whole text, and more of it than before, with nothing held."""
    n = len(step.fed)
    if not step.held and step.n_right == n > step.reach > 0:
        says = f"{pluralize(n, 'row')} {'was' if n == 1 else 'were'} computed, "
        says += "and nothing was read from a cache"
        return step.cause("cache never read", says)


def started_over(step: StepEvidence):
    """The start of the text with nothing held, after a longer part of it."""
    if not step.held and step.reach and step.n_right == len(step.fed):
        says = "the text was started over with an empty cache, after "
        return step.cause("started over", says + pluralize(step.reach, "token"))


def cache_not_passed_on(step: StepEvidence):
    """Nothing held: the cache was not passed, or not returned, or emptied. One name for these."""
    if not step.held and step.reach:
        says = f"you fed {pluralize(len(step.fed), 'token')} and the cache held nothing"
        return step.cause("cache not passed on", says)


def cache_went_back(step: StepEvidence):
    """Fewer held than fed before: an older cache, or too much taken out. One name for both.

    To feed again what was taken out is right.
    """
    if step.held < step.reach and not step.n_right:
        after = f"after {pluralize(step.reach, 'token')} had been fed"
        return step.cause("cache went back", f"the cache held {step.held}, {after}")


def written_twice(step: StepEvidence):
    """More held than fed before, and each of them a column of the text, so some of them twice.

    Without that, it can be the cache of another text.
    """
    if step.held <= step.reach:
        return None
    layer = step.step.layers[0]
    ours = step.step.keys[layer][0][:, : step.held]
    right = step.loop.reference.whole.keys[layer][0][:, : step.reach]
    if ours.shape[1] == step.held and match_columns(ours, right).any(1).all():
        says = (
            f"the cache held {step.held}, after only {pluralize(step.reach, 'token')} had been fed"
        )
        return step.cause("written twice", says)


# -- tokens that were not chosen, or not as they should be -----------------------------------------


def prompt_not_fed_as_given(step: StepEvidence):
    """Another token within the prompt: skipped, in another order, or another text."""
    at = step.right_end
    if step.held == step.reach and step.n_stray and at < step.loop.reference.n_prompt:
        came, right = step.label(step.fed[step.n_right]), step.label(step.text[at])
        says = f"{came!r} was fed at position {at}, but the prompt has {right!r} there"
        return step.cause("prompt not fed as given", says)


def several_tokens_fed(step: StepEvidence):
    """The best token of every row of the step before, and not of its last row alone."""
    before, n = next(step.before(), None), len(step.fed)
    choices = [int(row.argmax()) for row in before.rows.values()] if before else []
    if n > 1 and n == len(before.fed) and choices == step.fed:
        return step.cause("several tokens fed", f"you fed {n} tokens, and one was new")


def argmax_over_the_wrong_axis(step: StepEvidence):
    """One row's number instead of a token, and 0 wherever there was one row."""
    if len(step.fed) != 1 or not (before := next(step.before(), None)) or not before.rows:
        return None
    scores = torch.stack([*before.rows.values()])
    numbers = (
        scores[:, [0, -1]].argmax(0).tolist()
    )  # of the first token in the vocabulary, the last
    following = step.loop.steps[step.index + 1 :]
    always_0 = all(later.fed == [0] for later in following if len(later.fed) == 1)
    if len(before.rows) == len(before.fed) and step.fed[0] in numbers and always_0:
        return step.cause("argmax over the wrong axis", _not_best(step))


def wrong_row(step: StepEvidence):
    """The best token of a row not the last, and after single rows the best, so none was drawn."""
    before = next(step.before(), None)
    if before is None or len(step.fed) != 1 or step.loop.drew_numbers:
        return None
    rows = [row for row, logits in before.rows.items() if int(logits.argmax()) == step.fed[0]]
    later = step.loop.steps[step.index :]
    pairs = zip(later, later[1:], strict=False)
    rest_is_best = all(after.fed == [one.best] for one, after in pairs if len(one.fed) == 1)
    if rows and len(later) > 1 and rest_is_best:
        which = f"it is the best of row {rows[0]}, and the last row is {len(before.fed) - 1}"
        return step.cause("wrong row", f"{_not_best(step)}; {which}")


def not_greedy(step: StepEvidence):
    """A token that is not the best was fed and returned: so it was chosen."""
    if step.n_stray and step.held == step.reach and step.kept_a_stray:
        at, came, right = _stray(step)
        says = f"{came} was chosen for position {at}, but {right} had the highest score"
        drawn = ", and random numbers were drawn" * step.loop.drew_numbers
        return step.cause("not greedy", says + drawn)


def another_token_fed(step: StepEvidence):
    """A token that is not the best was fed, and not returned."""
    if step.n_stray and step.held == step.reach:
        return step.cause("another token fed", _not_best(step))


def _not_best(step) -> str:
    _, came, right = _stray(step)
    return f"you fed {came}, but {right} had the highest score"


def _stray(step) -> tuple[int, str, str]:
    """Position, token and right token of the first that is not the right one."""
    at = step.right_end
    return at, repr(step.label(step.fed[step.n_right])), repr(step.label(step.text[at]))


FEEDING_RULES = (
    stale_cache,
    cache_never_read,
    started_over,
    cache_not_passed_on,
    whole_sequence_fed,
    *CACHE_RULES,
    token_fed_twice,
    prompts_last_token_fed,
    fed_twice,
    prompt_not_fed_as_given,
    cache_went_back,
    written_twice,
    several_tokens_fed,
    argmax_over_the_wrong_axis,
    wrong_row,
    *CHOICE_RULES,
    not_greedy,
    another_token_fed,
)
