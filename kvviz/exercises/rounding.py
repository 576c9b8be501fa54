"""Notebook 05: is a gap rounding, or something else?"""

from __future__ import annotations

from typing import NamedTuple

from kvviz.checking.learner_code import is_unwritten
from kvviz.exercises.answers import to_bool
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, run_answer, with_hints

_TINY_BUG = "It's as small as rounding in float32, but float64 hardly shrinks it."
_LARGE_LOGITS = "Larger logits have larger gaps: the gate is relative to the largest logit."
_FIXED_LIMIT = "float64's gap grows with the logits too: compare it with gap32."
_FEW_BITS = (
    "It's over this course's gate, though float64 shrinks it: the float32 run did its arithmetic "
    "with fewer bits, as some GPUs do for matrix products."
)


class _Gap(NamedTuple):
    """A gap to judge, in logits; `scale` is the largest logit."""

    float32: float
    float64: float
    scale: float
    answer: bool
    hint: str


_GAPS = (
    _Gap(8.8e-6, 1.3e-14, 8.9, True, "That's the correct cache on the small model."),
    _Gap(6.4e-5, 2.2e-13, 31.9, True, _LARGE_LOGITS),
    _Gap(3.1e-3, 8.0e-12, 900.0, True, _LARGE_LOGITS),
    _Gap(0.0, 0.0, 5.0, True, "No gap at all isn't a bug."),
    _Gap(11.1, 11.1, 31.9, False, "That's a token written twice."),
    _Gap(4.0e-6, 3.9e-6, 31.9, False, _TINY_BUG),
    _Gap(6.6e-5, 7.0e-6, 31.9, False, _TINY_BUG),
    _Gap(2.0e-6, 1.9e-6, 0.5, False, _TINY_BUG),
    _Gap(1.1, 4.0e-9, 3.0e5, True, _LARGE_LOGITS),
    _Gap(8.1e-10, 8.0e-10, 1e-3, False, _TINY_BUG),
    _Gap(0.02, 3.0e-11, 31.9, False, _FEW_BITS),
)


@with_hints(
    "Two questions: is gap32 under a gate that grows with the logits? And did float64 shrink it?",
    "The gate is 1e-5 times the largest logit. To ask whether gap64 is a millionth of gap32 or "
    "less, multiply: a division fails where both gaps are 0.",
)
def is_rounding(function) -> Feedback:
    """Notebook 05: `is_rounding(gap32, gap64, scale)`; gaps in logits, and the largest logit.

    True if gap32 is at most 1e-5 of `scale`, and gap64 at most a millionth of gap32.

    >>> kv.exercises.is_rounding(lambda gap32, gap64, scale: gap64 <= 1e-6 * gap32).state
    'not right yet'
    """
    for gap in _GAPS:
        case = f"gap32 {gap.float32:g}, gap64 {gap.float64:g}, scale {gap.scale:g}"
        answer, problem = run_answer(function, gap.float32, gap.float64, gap.scale)
        if problem is NOT_DONE and not is_unwritten(function):
            return reject(f"{case}: your function returned nothing. Return True or False.")
        if problem is NOT_DONE:
            return problem
        if problem:
            return reject(f"{case}: {problem.message}")
        if (said := to_bool(answer)) is None:
            return reject(
                f"{case}: expected True or False, but your function returned {answer!r:.60}"
            )
        if said != gap.answer:
            hint = _FIXED_LIMIT if _has_fixed_limit(function, gap) else gap.hint
            return reject(f"{case}: your answer is {said}, expected {gap.answer}. {hint}")
    return accept(
        f"right in {len(_GAPS)} cases: True where the gap is under this course's gate, and float64 "
        "shrinks it to a millionth or less"
    )


def _has_fixed_limit(function, gap: _Gap) -> bool:
    """Whether the answer turns when all three numbers grow or shrink alike, due to gap64 alone."""

    def answer(*given):
        return to_bool(run_answer(function, *given)[0])

    size = 1e-6 if gap.answer else 1e6
    alike = answer(gap.float32 * size, gap.float64 * size, gap.scale * size)
    return alike is gap.answer and answer(gap.float32, 1e-30, gap.scale) is True
