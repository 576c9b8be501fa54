"""Notebooks 12 and 13: positions in a padded batch, a scheduler, and texts that fit in pages."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import NamedTuple

import torch

from kvviz.arguments import describe
from kvviz.count import pages_needed
from kvviz.exercises.answers import to_bool, to_tensor
from kvviz.exercises.feedback import Feedback, accept, reject, run_answer, with_hints

# Pads of each row, and the longest row's tokens: the one in the notebook comes first.
_BATCHES = (((0, 3), 7), ((2, 0, 5), 6), ((0,), 4), ((4,), 5), ((1, 1, 0, 3), 9))


class _Way(NamedTuple):
    """A typical wrong way to compute an answer, and a hint for whoever took it."""

    answer: Callable
    hint: str


# -- positions in a padded batch -------------------------------------------------------------------


@with_hints(
    "A pad is no token, so it takes no position. What is the first token's position in each row?",
    "A token's position is how many tokens come before it in its row. A running sum along the row "
    "(cumsum) counts the tokens up to and including each one.",
)
def positions_from_mask(function) -> Feedback:
    """Notebook 12: `positions(mask)`, a position for each token of a batch padded on the left.

    `mask` is (B, T) int64: 1 for a token, 0 for a pad. The answer is (B, T); at pads, any position
    is right, because nobody attends to them.

    >>> kv.exercises.positions_from_mask(lambda mask: mask.cumsum(-1))
    ✗ not right yet: each position is one too high: ...
    """
    masks = [_pad(*batch) for batch in _BATCHES]
    answers = []
    for mask in masks:
        answer, problem = run_answer(function, mask.clone())
        if problem:
            return problem
        if (positions := _to_positions(answer, mask.shape)) is None:
            shape = tuple(mask.shape)
            return reject(
                f"expected a position for each token, {shape}, but got {describe(answer)}"
            )
        answers.append(positions)
    right = [_count_before(mask) for mask in masks]
    if _agree(answers, right, masks):
        has_negative = any(bool((answer < 0).any()) for answer in answers)
        more = "; pads have negative ones, which a table of learned positions doesn't"
        found = f"each token has its position, in {len(masks)} batches"
        return accept(found + more * has_negative)
    for way in _POSITIONS:
        if _agree(answers, list(map(way.answer, masks)), masks):
            return reject(way.hint)
    return reject(_say_first(answers, right, masks))


def _pad(pads: tuple[int, ...], length: int) -> torch.Tensor:
    return (torch.arange(length) >= torch.tensor(pads)[:, None]).long()


def _to_positions(answer, shape) -> torch.Tensor | None:
    """A number for each token, also from one row for all; None if it isn't that."""
    positions = to_tensor(answer)
    try:
        return positions.double().broadcast_to(shape)
    except (AttributeError, RuntimeError):
        return None


def _count_before(mask):
    return mask.cumsum(-1) - 1


def _agree(answers, others, masks) -> bool:
    """Whether they're equal at every token."""
    triples = zip(answers, others, masks, strict=True)
    return all(bool((answer == other)[mask == 1].all()) for answer, other, mask in triples)


def _say_first(answers, right, masks) -> str:
    """The first position that's wrong."""
    for answer, other, mask in zip(answers, right, masks, strict=True):
        if wrong := ((answer != other) & (mask == 1)).nonzero().tolist():
            row, column = wrong[0]
            came = f"{answer[row, column]:g}"
            return (
                f"with the mask {mask[row].tolist()}, the token in column {column} gets position "
                f"{came}. How many tokens come before it in its row?"
            )
    raise AssertionError("no position is wrong")


_POSITIONS = (
    _Way(
        lambda mask: torch.arange(mask.shape[1]).expand_as(mask),
        "those are columns: row 2 starts at 3, because its three pads were counted. A pad takes no "
        "position.",
    ),
    _Way(
        lambda mask: mask.cumsum(-1),
        "each position is one too high: the first token's is 0. It's harmless under rotary, where "
        "only distances count, but not with learned positions.",
    ),
    _Way(
        lambda mask: (1 - mask).cumsum(-1),
        "that counts pads: count the tokens, the ones in the mask",
    ),
    _Way(lambda mask: mask, "that's the mask itself: count along the row"),
    _Way(
        lambda mask: mask.cumsum(0) - 1,
        "that counts down the columns, across sequences: count along each row",
    ),
    _Way(
        lambda mask: mask.flip(-1).cumsum(-1).flip(-1) - 1,
        "that counts from the right: a token's position is how many tokens come before it",
    ),
)


# -- texts that fit in pages -----------------------------------------------------------------------


@with_hints(
    "Take one text first: how many pages do 33 tokens take, if a page has room for 16? Then ask "
    "which of its pages another text could use, too.",
    "The full pages of the prefix, prefix // page of them, count once. Each text then needs pages "
    "of its own for what is left of the prefix and for its own tokens, rounded up.",
)
def fits(function) -> Feedback:
    """Notebook 13: `fits(budget, prefix, own, page)`, whether these texts fit in `budget` pages.

    Each text begins with the same `prefix` tokens, and then has tokens of its own: `own` lists how
    many, at least one each. A page has room for `page` tokens.

    >>> kv.exercises.fits(lambda budget, prefix, own, page: prefix + sum(own) <= budget * page)
    ✗ not right yet: the last page is partly empty: ...
    """
    answers, right = [], []
    cases = _list_texts()
    for budget, prefix, own, page in cases:
        answer, problem = run_answer(function, budget, prefix, list(own), page)
        if problem:
            return problem
        if (answer := to_bool(answer)) is None:
            return reject("return True if they fit and False if they don't")
        answers.append(answer)
        lengths = [prefix + n for n in own]
        right.append(pages_needed(lengths, page, prefix=prefix) <= budget)
    if answers == right:
        return accept(f"right in {len(cases)} cases, each at its exact budget or one page off")
    if answers == [not answer for answer in right]:
        return reject("every answer is the wrong way round: true should mean that they fit")
    for way in _FITS:
        if answers == [way.answer(*case) for case in cases]:
            return reject(way.hint)
    wrong = next(n for n, pair in enumerate(zip(answers, right, strict=True)) if pair[0] != pair[1])
    budget, prefix, own, page = cases[wrong]
    said = "fit" if answers[wrong] else "don't fit"
    return reject(
        f"fits(budget={budget}, prefix={prefix}, own={list(own)}, page={page}): you say they "
        f"{said}. Draw the pages: which are shared, and which belong to one text?"
    )


def _list_texts() -> list[tuple]:
    """(budget, prefix, own, page) around the exact number of pages, also of each wrong way."""
    texts = [(0, (33,), 16), (24, (5, 6, 9), 8), (20, (3, 3), 8), (7, (1, 1, 1), 16)]
    texts += [(16, (16,), 16), (32, (1, 16, 17), 16), (9, (6, 7, 5), 4), (0, (5, 6), 1)]
    texts += [(13, (12, 3, 3, 3), 5), (40, (7,) * 6, 8), (17, (15, 31), 16)]
    cases = []
    for prefix, own, page in texts:
        need = pages_needed([prefix + n for n in own], page, prefix=prefix)
        alone = sum(ceil((prefix + n) / page) for n in own)
        budgets = {max(0, budget) for n in (need, alone) for budget in (n - 1, n, n + 1)}
        cases += [(budget, prefix, own, page) for budget in sorted(budgets)]
    return cases


def _floor_each(prefix, own, page):
    return prefix // page + sum((prefix % page + n) // page for n in own)


_FITS = (
    _Way(
        lambda budget, prefix, own, page: prefix + sum(own) <= budget * page,
        "the last page is partly empty: the rest of it is only for how that text goes on, so "
        "round each text's pages up",
    ),
    _Way(
        lambda budget, prefix, own, page: sum(prefix + n for n in own) <= budget * page,
        "two things: the last page of each text is partly empty, and a shared page counts once",
    ),
    _Way(
        lambda budget, prefix, own, page: sum(ceil((prefix + n) / page) for n in own) <= budget,
        "a shared page counts once: the full pages of the prefix are the same for all",
    ),
    _Way(
        lambda budget, prefix, own, page: (
            ceil(prefix / page) + sum(ceil(n / page) for n in own) <= budget
        ),
        "the prefix's last page, if it isn't full, can't be shared: each text goes on in a copy of "
        "it with its own tokens",
    ),
    _Way(
        lambda budget, prefix, own, page: (
            prefix // page + sum(ceil(n / page) for n in own) <= budget
        ),
        "the prefix's last tokens, those that fill no page, went missing: each text holds them "
        "before its own",
    ),
    _Way(
        lambda budget, prefix, own, page: _floor_each(prefix, own, page) <= budget,
        "that rounds down: a page that's partly filled is taken, too",
    ),
    _Way(
        lambda budget, prefix, own, page: (
            pages_needed([prefix + n for n in own], page, prefix=prefix) < budget
        ),
        "exactly enough pages are enough",
    ),
    _Way(
        lambda budget, prefix, own, page: pages_needed(prefix + max(own), page) <= budget,
        "that's the longest text alone: each of the others needs pages of its own, too",
    ),
)
