"""Notebook 02's exercise: which entries of one text's cache could serve another text."""

from __future__ import annotations

import torch

from kvviz.arguments import describe
from kvviz.exercises.answers import to_bools, to_tensor
from kvviz.exercises.feedback import Feedback, accept, reject, run_answer, with_hints


@with_hints(
    "An entry is reusable where it's the same in both, except for rounding. How far apart are two "
    "entries, compared with their own size? The notebook has a function for that.",
    "change(a, b) has a number for each layer and position. Rounding stays below 1e-4 and every "
    "real change here is above 1e-2.",
)
def reusable(function, first, base, last) -> Feedback:
    """Notebook 02: `reusable(a, b)`, which entries of a could replace b's, (layers, positions).

    `base` holds a text's entries, (layers, positions, numbers); `first` and `last` hold those of
    the same text with another first and another last token.

    Raises:
        ValueError: entries that aren't tensors of one shape, with at least two positions.

    >>> base = torch.ones(3, 7, 4)
    >>> kv.exercises.reusable(lambda a, b: True, base + 1, base, base + 1)
    ✗ not right yet: expected True or False for each layer and position, (3, 7), but got True
    """
    _check_entries(first=first, base=base, last=last)
    texts = {"first": first, "last": last, "rounding": base * (1 + 1e-6)}
    half = base.shape[2] // 2  # an entry is its keys, then its values
    for name, part in (("keys", slice(half)), ("values", slice(half, None))):
        texts[name] = base.clone()
        texts[name][:, -1, part] += base.abs().max()
    texts["another order"] = base.clone()  # of one entry's numbers: their sum and mean don't tell
    texts["another order"][-1, 1] = base[-1, 1].flip(0)
    shape, answers, right = tuple(base.shape[:2]), {}, {}
    for name, entries in texts.items():
        answer, problem = run_answer(function, entries.clone(), base.clone())
        if problem:
            return problem
        if (bools := to_bools(answer, shape)) is None:
            return _refuse(answer, shape)
        answers[name] = bools
        right[name] = (entries - base).norm(dim=-1) <= 1e-3 * base.norm(dim=-1)
    return _judge(answers, right) or accept(
        "right for another first token, another last token and mere rounding"
    )


def _check_entries(base, **others) -> None:
    expected = "expected a tensor (layers, positions, numbers)"
    for name, entries in {"base": base, **others}.items():
        fits = isinstance(entries, torch.Tensor) and entries.ndim == 3
        if not fits or entries.shape[1] < 2 or not entries.is_floating_point():
            raise ValueError(f"{name}: {expected}, but got {describe(entries)}")
        if entries.shape != base.shape:
            came = f"{tuple(base.shape)} as base, but got {tuple(entries.shape)}"
            raise ValueError(f"{name}: expected {came}")


def _refuse(answer, shape: tuple[int, ...]) -> Feedback:
    """What's wrong with an answer that isn't True or False for each layer and position."""
    tensor = to_tensor(answer)
    expected = f"expected True or False for each layer and position, {shape}, but got"
    if tensor is None:
        is_short = isinstance(answer, bool | int | float)
        return reject(f"{expected} {answer if is_short else type(answer).__name__}")
    got = tuple(tensor.shape)
    if got == shape:
        return reject(f"{expected} other numbers: compare them with a tolerance")
    if got[:2] == shape:
        return reject(f"{expected} {got}: all the numbers of an entry must agree, so reduce them")
    return reject(f"{expected} {got}")


def _judge(answers: dict, right: dict) -> Feedback | None:
    """The mistake that explains all the answers, else the first entry that's wrong; or None."""
    if all(torch.equal(answers[name], right[name]) for name in right):
        return None
    if all(torch.equal(answers[name], ~right[name]) for name in right):
        return reject(
            "every answer is the wrong way round: true should mean that the entry can be reused"
        )
    if not any(answer.any() for answer in answers.values()):
        return reject(
            "you say that nothing can be reused, not even between two passes over the same text"
        )
    if len(right["last"]) > 1 and all(
        torch.equal(answers[name][0], right[name][0]) and not answers[name][1:].any()
        for name in right
    ):
        return reject(
            "you say that entries can be reused in layer 0 only. How far did those above it move "
            "when only the last token was new?"
        )
    if not answers["rounding"].all():
        return reject(
            "two passes over the same text differ in their last digits, and you call some of those "
            "entries different. Allow a small tolerance."
        )
    if all(torch.equal(answers[name], right[name]) for name in right if name != "another order"):
        return reject(
            "right for the three texts, but with one entry's numbers in another order you call it "
            "reusable. Compare number with number, and only then reduce them."
        )
    return _judge_texts(answers, right)


def _judge_texts(answers: dict, right: dict) -> Feedback:
    name = next(n for n in right if not torch.equal(answers[n], right[n]))
    if name in ("keys", "values"):
        return reject(
            f"where only an entry's {name} differ, your answer isn't right: an entry is its keys "
            "and then its values, so compare all of its numbers"
        )
    if bool((answers[name] == right[name][0]).all()):
        return reject(
            f"with another {name} token, your answer is the same in every layer as in layer 0. "
            "Look higher up: there, an entry also depends on the tokens its token attended to."
        )
    layer, position = (answers[name] != right[name]).nonzero()[0].tolist()
    said = "can" if answers[name][layer, position] else "can't"
    return reject(
        f"with another {name} token, you say that layer {layer}, position {position} {said} be "
        "reused. How far did that entry move?"
    )
