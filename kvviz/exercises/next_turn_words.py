"""What is wrong with the passes of notebook 14's `next_turn`, in words."""

from __future__ import annotations

from kvviz.words import pluralize

MIND_ZERO = ". Nothing had to be cropped here; mind that x[:-0] is empty"


def describe_pass(run, turn) -> str | None:
    """What is wrong with what the first pass found in the cache, and with what was fed; or None."""
    held, fed = run[0].held_before, [token for step in run for token in step.token_ids[0].tolist()]
    if held == 0 and fed[: len(turn.new)] == turn.new and turn.n_kept:
        return _describe_restart(turn)
    if held == 0 and turn.n_kept:
        says = f"you fed {pluralize(len(fed), 'token')} and the cache held nothing"
        return says + MIND_ZERO if turn.n_kept == len(turn.held) else f"{says}: pass it on"
    if held > turn.n_common:
        return _describe_stale(held, fed, turn)
    if held == len(turn.new):
        return (
            f"the cache held all {held} tokens already, and you fed {pluralize(len(fed), 'token')} "
            "on top of them. One token must be fed again: crop it first"
        )
    if fed != turn.new[held:]:
        return _describe_fed(held, fed, turn, run.label)
    if held < turn.n_kept:
        return (
            f"right, but {turn.n_kept - held} too few kept: the cache held {held} when you fed "
            f"{pluralize(len(fed), 'token')}, and {turn.n_kept} could have stayed"
        )
    return None


def _describe_restart(turn) -> str:
    needed = len(turn.new) - turn.n_kept
    says = f"you started again: {pluralize(len(turn.new), 'row')} were computed, and {needed} "
    says += f"{'was' if needed == 1 else 'were'} needed"
    if turn.n_kept == len(turn.held):
        return says + MIND_ZERO
    return f"{says}. Keep what both texts begin with"


def _describe_stale(held: int, fed, turn) -> str:
    """More held than both texts begin with."""
    common, old = turn.n_common, len(turn.held)
    both = f"both texts begin with {pluralize(common, 'token')}, but the cache held {held}"
    if not common:
        both = f"the texts differ from the first token on, but the cache held {held}"
    pairs = [*zip(turn.held, turn.new, strict=False)]
    equal = sum(a == b for a, b in pairs)
    if held == old and fed == turn.new[turn.n_kept :]:
        return f"{both} when you fed the rest: nothing was cropped"
    if held in (equal, len({*turn.held} & {*turn.new})) and equal > common:
        return (
            f"{both}: so many tokens are the same in both, but those after the first difference "
            "have attended to an edited token. Stop at the first difference"
        )
    if old > common < len(turn.new) and held in (len(pairs), len(pairs) - 1):
        return (
            f"{both}: that's a length. Compare the tokens themselves, one by one, up to the first "
            "that differs"
        )
    if held == old:
        return f"{both}: nothing was cropped"
    return f"{both} after you had cropped it: {held - common} too many stayed"


def _describe_fed(held: int, fed, turn, label) -> str:
    """The cache held a part of the new text, and then came something else than the rest."""
    new, n = turn.new, len(fed)
    counts = f"the cache held {held} and you fed {n}"
    skipped = len(new) - n - held
    if skipped > 0 and fed == new[len(new) - n :]:
        first = f"{label(new[held])!r} at position {held}"
        rest = "" if skipped == 1 else f", and {skipped - 1} more"
        return f"{counts}, without {first}{rest}. Feed everything that the cache doesn't hold"
    if fed == new:
        return f"{counts}: the whole text, on top of its beginning. Feed only ids[:, n:]"
    if skipped < 0 and fed == new[len(new) - n :]:
        again = f"the first {-skipped}" if skipped < -1 else f"the first, {label(fed[0])!r},"
        return f"{counts}: {again} it held already. Feed each token once"
    if fed[: len(new) - held] == new[held:]:
        return f"{counts}, more than the new text: feed it once, and choose no next token"
    return f"{counts}, but not with what comes next in the new text"
