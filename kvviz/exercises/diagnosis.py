"""Notebooks 05 and 06: rounding or a bug, and three unnamed caches."""

from __future__ import annotations

from typing import NamedTuple

from kvviz.checking.cache import check_cache
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, run_answer
from kvviz.faults import GALLERY
from kvviz.forge import KVCache

_UNNAMED = {
    "X": GALLERY["keys and values in front"],
    "Y": GALLERY["position counted twice"],
    "Z": GALLERY["cache never read"],
}
X, Y, Z = (type(name, (fault.forge_class,), {}) for name, fault in _UNNAMED.items())

_TINY_BUG = "A tiny bug gets through: its gap is just as small in float32, but stays in float64."
_LARGE_LOGITS = "The gap scales with the logits, so the gate has to be relative to the largest."


class _Gap(NamedTuple):
    """A gap to judge, in logits; `scale` is the largest logit."""

    float32: float
    float64: float
    scale: float
    is_rounding: bool
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
)


def is_rounding(function) -> Feedback:
    """Notebook 05: `is_rounding(gap32, gap64, scale)`; gaps in logits, and the largest logit.

    >>> kv.exercises.is_rounding(lambda gap32, gap64, scale: gap64 <= 1e-9 * scale)
    ✓ passed: right in 10 cases: rounding shrinks in float64, a bug doesn't
    """
    for gap in _GAPS:
        answer, problem = run_answer(function, gap.float32, gap.float64, gap.scale)
        if problem:
            return problem
        if not isinstance(answer, bool):
            return reject(f"is_rounding should return True or False, but returned {answer!r}")
        if answer != gap.is_rounding:
            word = "rounding" if answer else "a bug"
            return reject(
                f"gap {gap.float32:g} in float32 and {gap.float64:g} in float64, logits up to "
                f"{gap.scale:g}: you say {word}. {gap.hint}"
            )
    return accept(f"right in {len(_GAPS)} cases: rounding shrinks in float64, a bug doesn't")


_RIGHT = {
    "X": {"wrong order", "keys and values in front"},
    "Y": {"position counted twice"},
    "Z": {"cache never read"},
}
_HINTS = {
    ("X", "fine"): "Its tokens and logits are. Feed it 3 + 1 + 2: chunks tell more than one query.",
    ("X", "precision"): "The entries differ by more than rounding, but the logits don't.",
    ("Y", "precision"): "Rounding would change the values too, and in layer 0 they're equal.",
    ("Y", "fine"): "The tokens are equal for this prompt. Look at the gap, and at the keys.",
    ("Z", "fine"): "Every number is right. Look at the work: count the rows.",
}


def diagnose(answers) -> Feedback:
    """Notebook 06: `answers` {"X": name, "Y": name, "Z": name}, the faults of the unnamed caches.

    Raises:
        ValueError: `answers` isn't a dict with exactly X, Y and Z.

    >>> kv.exercises.diagnose({"X": "wrong order", "Y": ..., "Z": ...}).state
    'not done yet'
    """
    if not isinstance(answers, dict) or set(answers) != set(_RIGHT):
        raise ValueError(f"diagnose: expected answers for X, Y and Z, got {answers!r}")
    if any(answer is ... or answer is None for answer in answers.values()):
        return Feedback("not done yet", "replace each ... with the name of a fault, or with 'fine'")
    names = {"fine", "precision", "wrong order", *GALLERY}
    for which, answer in answers.items():
        answer = answer.strip().lower() if isinstance(answer, str) else answer
        if answer in _RIGHT[which]:
            continue
        if answer not in names:
            return reject(
                f"{which}: expected one of {', '.join(sorted(names))}, but got {answer!r}"
            )
        hint = _HINTS.get((which, answer), "Which check caught it, and what differs first?")
        return reject(f"{which} isn't {answer!r}. {hint}")
    return accept("X has the wrong order, Y is counted twice, Z is never read: all three found")


def fixed(**classes) -> Feedback:
    """Notebook 06: X, Y and Z, each fixed in a subclass that overrides one method.

    Raises:
        ValueError: the classes aren't given as X=, Y= and Z=.

    >>> kv.exercises.fixed(X=kv.Forge, Y=kv.Forge, Z=kv.Forge)
    ✗ not right yet: X: fix it in a subclass, class FixedX(kv.exercises.X)
    """
    if set(classes) != set(_RIGHT):
        raise ValueError(f"fixed: expected X=..., Y=... and Z=..., got {sorted(classes)}")
    for name, kind in classes.items():
        broken = {"X": X, "Y": Y, "Z": Z}[name]
        if not (isinstance(kind, type) and issubclass(kind, broken)):
            return reject(f"{name}: fix it in a subclass, class Fixed{name}(kv.exercises.{name})")
        verdict = check_cache(KVCache, kind)
        if verdict.cause == "not done yet":
            return NOT_DONE
        if not verdict.passed:
            return reject(f"{name}: {verdict.headline}. {verdict.advice}")
    return accept(
        "all three have the right tokens, logits, keys and values, in chunks too, at 1 row a step"
    )
