"""Notebooks 00 and 01: describe a step, and say how much of its work the plain loop uses."""

from __future__ import annotations

from itertools import starmap
from math import isclose

import torch

from kvviz import count
from kvviz.drawing.figures import check_run
from kvviz.exercises.answers import to_number, to_numbers
from kvviz.exercises.feedback import Feedback, accept, reject, run_answer, with_hints
from kvviz.exercises.pictures import picture_of_step
from kvviz.forge import Forge, KVCache
from kvviz.recording.recorder import record

_NAMES = ("fed", "visible", "position")


@with_hints(
    "Compare the pictures of steps 0 and 1. Count the columns, and say where each one comes from.",
    "The newest row sees what was held before and everything fed in this call. The last column is "
    "its own, and columns are numbered from 0.",
)
def describe(function, *runs) -> Feedback:
    """Notebook 00: `describe(step)` returns (fed, visible, position) for every step of `runs`.

    Raises:
        TypeError: one of `runs` isn't a recording.
        ValueError: no run was given.

    >>> kv.exercises.describe(lambda step: (step.fed, step.held_before + step.fed, 0), run).state
    'not right yet'
    """
    if not runs:
        raise ValueError("describe: expected your function and the runs to try it on, got no run")
    for run in runs:
        check_run(run)
    wrong, undone = {}, set()  # name -> the first step where it's wrong, and the answer there
    chunked = _run_in_chunks()
    for step in (step for run in (*runs, chunked) for step in run):
        answer, problem = run_answer(function, step)
        if problem:
            return problem
        if (numbers := _read_description(answer)) is None:
            return reject(
                f"describe should return three numbers, ({', '.join(_NAMES)}), but returned "
                f"{_show(answer)}"
            )
        right = (step.fed, step.visible, step.visible - 1)
        undone.update(name for name in _NAMES if numbers[name] is None)
        for name, expected in zip(_NAMES, right, strict=True):
            if name not in undone and numbers[name] != expected:
                wrong.setdefault(name, (step, numbers[name]))
    if not wrong and not undone:
        says = "fed, visible and position are right in every step"
        if given := _list_read(function, chunked[0]):
            says += f"; you returned the step's own {' and '.join(given)}: now work them out from "
            says += "fed and held_before"
        return accept(says)
    first = next((wrong[name][0] for name in _NAMES if name in wrong), None)
    picture = None if first is None else picture_of_step(first)
    return reject(_judge_description(wrong, undone, chunked), picture)


def _run_in_chunks():
    """A small model's run in which no length is that of a text the learner knows."""
    forge, cache = Forge.small(), KVCache(4)
    with record(forge, keep=()) as run:
        for chunk in torch.arange(9)[None].split((4, 3, 1, 1), dim=1):
            forge(chunk, cache)
    return run


class _Watched:
    """A step that notes which of its own answers are read."""

    def __init__(self, step):
        self._step, self._read = step, []

    def __getattr__(self, name):
        if name in ("visible", "position"):
            self._read.append(name)
        return getattr(self._step, name)


def _list_read(function, step) -> list[str]:
    """Which of visible and position the function reads from the step."""
    watched = _Watched(step)
    run_answer(function, watched)
    return sorted({*watched._read}, key=_NAMES.index)


def _read_description(answer) -> dict[str, float | None] | None:
    """The three numbers by name, None for one that's still missing; None if there aren't three."""
    parts = list(answer) if isinstance(answer, tuple | list) else answer
    undone = [False] * 3
    if isinstance(parts, list):
        undone = [part is None or part is ... for part in parts]
        parts = [0 if missing else part for part, missing in zip(parts, undone, strict=True)]
    numbers = to_numbers(parts, 3)
    if numbers is None or all(undone):
        return None
    given = zip(_NAMES, numbers, undone, strict=True)
    return {name: None if missing else number for name, number, missing in given}


def _judge_description(wrong: dict, undone: set, chunked) -> str:
    """What's right, what's still missing, and the first mistake."""
    good = [name for name in _NAMES if name not in wrong and name not in undone]
    verb = "are" if len(good) > 1 else "is"
    praise = f"{' and '.join(good)} {verb} right in every step, but " if good else ""
    if not wrong:
        missing = " and ".join(name for name in _NAMES if name in undone)
        return f"{praise}{missing} {'are' if len(undone) > 1 else 'is'} not done yet"
    name = next(name for name in _NAMES if name in wrong)
    (step, got), advise = wrong[name], _ADVICE[name]
    where = f"step {step.index} of the run {'with' if step.cached else 'without'} a cache"
    if any(step is each for each in chunked):
        where = f"step {step.index} of another run, in chunks of 4, 3, 1 and 1"
    said = f"at {where}, which was fed {step.fed} with {step.held_before} held before, you say"
    return f"{praise}{said} {name} is {got}. {advise(step, got)}"


def _advise_fed(step, got) -> str:
    return "Every token fed makes a row: how many rows are in the picture of that step?"


def _advise_visible(step, got) -> str:
    if got == step.fed:
        return "That's the number fed. The newest row also sees the tokens held before."
    if got == step.held_before:
        return "That leaves out the tokens fed. The newest row sees its own token too."
    if got == step.held_before + 1:
        return f"That counts one of the {step.fed} tokens fed. The newest row sees all of them."
    return "How many columns are in the picture of that step?"


def _advise_position(step, got) -> str:
    if got == step.visible:
        return "That counts from 1. Positions count from 0."
    if got == step.held_before:
        return f"The first of the {step.fed} tokens fed sits there. The newest is the last of them."
    if got == step.fed - 1:
        return "That's its number among the tokens fed. The tokens held before come first."
    return "Which column of the picture is the newest token's own?"


_ADVICE = {"fed": _advise_fed, "visible": _advise_visible, "position": _advise_position}


@with_hints(
    "Count two totals over all the steps: the rows of logits that are computed, and those used.",
    "Step k computes p + k rows, for k from 0 to n - 1, and uses one of them.",
)
def share_used(function) -> Feedback:
    """Notebook 01: `share_used(p, n)`, how much of what the plain loop scores it uses, 0 to 1.

    >>> kv.exercises.share_used(lambda p, n: n / sum(p + k for k in range(n)))
    ✓ passed: for 20 and 200, 1 row of logits in 120 is used (0.84%), and four others are right too
    """
    cases = [(20, 200), (6, 12), (1, 2), (5, 1), (7, 3)]
    answers = []
    for case in cases:
        answer, problem = run_answer(function, *case)
        if problem:
            return problem
        if (number := to_number(answer)) is None:
            return reject(
                f"share_used should return a number from 0 to 1, but returned {_show(answer)}"
            )
        answers.append(number)

    def matches(share) -> bool:
        pairs = zip(answers, (share(p, n) for p, n in cases), strict=True)
        return all(isclose(got, expected, rel_tol=5e-3) for got, expected in pairs)

    if matches(_share):
        return accept(
            "for 20 and 200, 1 row of logits in 120 is used (0.84%), and four others are right too"
        )
    first = next(
        i for i, case in enumerate(cases) if not isclose(answers[i], _share(*case), rel_tol=5e-3)
    )
    found = f"share_used{cases[first]} returned {float(answers[first]):.4g}"
    for wrong, advice in _WRONG_SHARES:
        if matches(wrong):
            return reject(f"{found}. {advice}")
    if any(_are_rounded(answers, list(starmap(_share, cases)), digits) for digits in (1, 2, 3)):
        return reject(f"{found}. Don't round: return the whole fraction.")
    return reject(
        f"{found}. Try share_used(1, 2) by hand: step 0 computes 1 row and step 1 computes 2. One "
        "of each is used, so 2 of 3."
    )


def _share(p: int, n: int) -> float:
    return n / count.positions(p, n, cached=False)


def _are_rounded(answers, shares, digits: int) -> bool:
    """Whether the answers are the shares, rounded or cut to so many digits."""
    unit = 10**-digits
    return all(
        isclose(got, round(got, digits), abs_tol=1e-7) and abs(got - share) < unit
        for got, share in zip(answers, shares, strict=True)
    )


_WRONG_SHARES = (  # what some wrong answers amount to, and the advice for each
    (lambda p, n: 100 * _share(p, n), "That's in percent: return a fraction, from 0 to 1."),
    (
        lambda p, n: 1 / _share(p, n),
        "That's the rows computed for each one used: turn it upside down.",
    ),
    (
        lambda p, n: sum(1 / (p + k) for k in range(n)) / n,
        "That's the average of the steps' shares. But long steps compute more rows, so divide all "
        "the rows used by all the rows computed.",
    ),
    (lambda p, n: 1 / (p + n - 1), "That's right for the last step alone. What about all n steps?"),
    (lambda p, n: 1 / p, "That's right for a text that stays p tokens long. But the text grows."),
    (
        lambda p, n: 1 / count.positions(p, n, cached=False),
        "That's one row in all. But one row is used at each of the n steps.",
    ),
    (
        lambda p, n: n / count.positions(p, n + 1, cached=False),
        "That computes n + 1 steps. The prompt's own pass gives the first new token, and the last "
        "new token is never fed.",
    ),
    (
        lambda p, n: n / count.positions(p, n, cached=True),
        "That's right for a loop with a cache. This loop has none: it feeds the whole text at "
        "every step.",
    ),
)


def _show(answer) -> str:
    """A short answer as it is, and the type of a long one."""
    shown = repr(answer)
    is_plain = isinstance(answer, str | int | float | complex | tuple | list | dict)
    return shown if is_plain and len(shown) <= 60 else type(answer).__name__
