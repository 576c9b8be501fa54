"""The work of a loop: rows that the text needs, and rows beyond them."""

from __future__ import annotations

from dataclasses import dataclass, field

from kvviz.checking.compare import compare_work, pace
from kvviz.checking.guess_passes import is_guessing
from kvviz.checking.loop_evidence import LoopEvidence
from kvviz.checking.step_evidence import StepEvidence
from kvviz.checking.verdict import Finding
from kvviz.words import join, pluralize


@dataclass
class Chain:
    """Steps of which each goes on from what the one before left in a cache.

    Attributes:
        first: the step that started it, with an empty cache; None if the cache was filled before.
        length: tokens of the right text that its cache holds.
        longest: the most it ever held.
        last: the number of its last step.
        fed_again: (tokens held, those of them that had been held, taken out, and were fed again)
            for each step.
    """

    first: StepEvidence | None
    length: int = 0
    longest: int = 0
    last: int = -1
    fed_again: list[tuple[int, int]] = field(default_factory=list)


def find_chains(loop: LoopEvidence) -> list[Chain]:
    """The chains of steps with the right past. Which cache a step read is told by its length."""
    chains = []
    for step in loop.right_steps:
        fits = [chain for chain in chains if chain.length >= step.held]
        if not step.held or not fits:
            chain = Chain(step if not step.held else None, step.held)
            chains.append(chain)
        else:  # the one of which the least has to be taken out; of equals the latest
            chain = min(fits, key=lambda chain: (chain.length, -chain.last))
        again = min(chain.length, step.right_end) - step.held
        chain.fed_again.append((step.right_end, again))
        chain.length = step.right_end
        chain.longest, chain.last = max(chain.longest, chain.length), step.index
    return chains


def find_restart(loop: LoopEvidence) -> StepEvidence | None:
    """The step that began the text again, with an empty cache, after a pass over the prompt that
    was given up; None if there is none.

    Once, with new tokens, it can also be a second cache that checks the guesses of the first: then
    it counts only if the first had time to go on.
    """
    needed, found = loop.n_equal - 1, []
    chains = [chain for chain in find_chains(loop) if chain.first is not None]
    for chain, later in zip(chains, chains[1:], strict=False):
        was_given_up = loop.reference.n_prompt <= chain.longest < needed
        if was_given_up and chain.last < later.first.index:
            found.append(later.first)
    can_be_second = len(found) == 1 and found[0].right_end > max(found[0].reach, needed - 3)
    return None if can_be_second or not found else found[0]


def find_growing(loop: LoopEvidence) -> tuple[int, int] | None:
    """(tokens held, tokens fed again) of the last step, if each feeds most of the text again.

    A loop that guesses on a copy of its cache feeds each token twice at most, and so isn't meant.
    """
    for chain in find_chains(loop):
        again = [pair for pair in chain.fed_again if pair[1]]
        pairs = zip(again, again[1:], strict=False)
        if len(again) < 2 or not all(end > held - n for (end, _), (held, n) in pairs):
            continue
        (_, first), (held, last) = again[0], again[-1]
        if last > first and 3 * last >= held:
            return held, last
    return None


def describe_pace(loop: LoopEvidence) -> str:
    """How many rows the steps after the prompt computed, in words."""
    rows = [len(step.fed) for step in loop.steps if step.held >= loop.reference.n_prompt]
    if not rows:
        return pace(loop.run.rows)
    least, most = min(rows), max(rows)
    return f"{least} to {most} rows a step" if least < most else f"{pluralize(most, 'row')} a step"


def compare_rows(loop: LoopEvidence) -> Finding:
    """The rows computed, beside those that the text needs; more of them are no failure."""
    run, needed = loop.run, _needed(loop)
    if find_restart(loop) or find_growing(loop):
        return compare_work(run.rows, needed, spare=-1)
    total, most = sum(run.rows), max(step.visible for step in run)
    more = f", {needed} needed" if total > needed + 1 else ""
    held = f"the model saw {pluralize(most, 'token')} at most"
    return Finding(
        "work", True, f"{describe_pace(loop)}; {pluralize(total, 'row')} in all{more}; {held}"
    )


def list_remarks(loop: LoopEvidence) -> tuple[str, ...]:
    """What was computed beyond need, and what was saved."""
    remarks, extra = [], sum(loop.run.rows) - _needed(loop)
    if extra > 0:
        why = _explain_extra(loop, extra)
        remarks.append(f"{pluralize(extra, 'row')} more than needed: {why}")
    saved, passes = loop.n_new - len(loop.run), pluralize(len(loop.run), "pass", "passes")
    of_model = f"{passes} of the model for {loop.n_new} new tokens"
    if saved > 0:
        remarks.append(f"{of_model}: {pluralize(saved, 'pass', 'passes')} saved")
    elif any(map(is_guessing, loop.right_steps)):
        more = f"{-saved} more than without guesses" if saved else "no pass saved"
        remarks.append(f"{of_model}: {more}")
    return (*remarks, *_describe_repetition(loop))


def _explain_extra(loop: LoopEvidence, extra: int) -> str:
    """What the rows beyond need computed, in words."""
    last = [step for step in loop.run if step.visible == loop.out.shape[1]]
    if extra == 1 and last:
        return "the last token doesn't have to be fed"
    rows = _sort_rows(loop)
    if sum(rows.values()) != extra:
        return "rows of other tokens, or of tokens computed before"
    words = {
        "wrong": ("guess turned out wrong", "guesses turned out wrong"),
        "again": ("token was fed again", "tokens were fed again"),
        "past": ("row was past the last one needed", "rows were past the last one needed"),
        "other": ("was of another text", "were of another text"),
    }
    return join([pluralize(n, *words[kind]) for kind, n in rows.items() if n])


def _sort_rows(loop: LoopEvidence) -> dict[str, int]:
    """How many rows beyond need were wrong guesses, tokens that had been computed, tokens past the
    end of what is needed, and tokens of another text."""
    needed, computed = _needed(loop), set()
    rows = dict.fromkeys(("wrong", "again", "past", "other"), 0)
    for step in loop.steps:
        follows = step.n_right or loop.reference.n_prompt <= step.held <= step.reach
        for row, position in enumerate(range(step.held, step.end)):
            is_right = row < step.n_right and step.is_right
            if is_right and position < needed and position not in computed:
                computed.add(position)
            elif is_right and position < needed:
                rows["again"] += 1
            else:
                rows["past" if position >= needed else "wrong" if follows else "other"] += 1
    return rows


def _describe_repetition(loop: LoopEvidence) -> tuple[str, ...]:
    """That the text repeats itself: equal values give the same blend wherever attention looks."""
    text = loop.out[0]
    new = text[loop.reference.n_prompt :].unique().numel()
    if 2 * text.unique().numel() > text.numel():
        return ()
    what = "every new token is the same" if new == 1 else "the text repeats itself"
    return (f"{what}, and equal tokens can hide a mistake: try another prompt",)


def _needed(loop: LoopEvidence) -> int:
    new = max(loop.reference.n_new, loop.n_new) if loop.n_equal < loop.out.shape[1] else loop.n_new
    return loop.reference.n_prompt - loop.n_reused + new - 1
