"""Notebooks 04 to 06: the mask, a prompt in chunks, rounding or bug, and three unnamed caches."""

from __future__ import annotations

from typing import NamedTuple

import torch

from kvviz.checking.cache import check_cache
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, run_answer
from kvviz.faults import GALLERY
from kvviz.forge import KVCache
from kvviz.words import pluralize

_UNNAMED = {
    "X": GALLERY["keys and values in front"],
    "Y": GALLERY["position counted twice"],
    "Z": GALLERY["cache never read"],
}
X, Y, Z = (type(name, (fault.forge_class,), {}) for name, fault in _UNNAMED.items())


def causal_mask(function) -> Feedback:
    """Notebook 04: `causal_mask(t, pos_start, pos_end)`, True where a row may see a column.

    >>> kv.exercises.causal_mask(kv.causal_mask)
    ✓ passed: right for a prompt, for 3 rows with 4 held, for 2 with 3 held, and for a single row
    """
    for t, start in ((6, 0), (3, 4), (2, 3), (1, 6), (1, 0)):
        end = start + t
        answer, problem = run_answer(function, t, start, end)
        if t == 1 and problem is NOT_DONE:
            continue  # None: a single row may see every column
        if problem:
            return problem
        found = f"{pluralize(t, 'row')} with {start} held"
        shape = tuple(getattr(answer, "shape", ()))
        if shape == (t, t) and start:
            return reject(
                f"{found}: your mask is {t} x {t}, but the keys held need columns too: {t} x {end}."
            )
        if shape != (t, end) or answer.dtype != torch.bool:
            got = f"{shape}, {answer.dtype}" if shape else type(answer).__name__
            return reject(f"{found}: expected a bool tensor of shape ({t}, {end}), but got {got}")
        rows, columns = torch.arange(start, end)[:, None], torch.arange(end)
        right = columns <= rows
        if torch.equal(answer, right):
            continue
        if torch.equal(answer, ~right):
            return reject(f"{found}: your mask is True where a row may not see. Invert it.")
        if torch.equal(answer, columns < rows):
            return reject(f"{found}: no row sees its own column. A token sees its own key too.")
        if torch.equal(answer, columns <= rows - start):
            sees, should = int(answer[0].sum()), start + 1
            return reject(
                f"{found}: the first new query sees {pluralize(sees, 'key')} and should see "
                f"{should}. The triangle belongs at the bottom right."
            )
        row, column = (answer != right).nonzero()[0].tolist()
        may = "may" if answer[row, column] else "may not"
        return reject(
            f"{found}: you say that row {row}, at position {start + row}, {may} see position "
            f"{column}. Compare the two positions."
        )
    return accept(
        "right for a prompt, for 3 rows with 4 held, for 2 with 3 held, and for a single row"
    )


def chunked_prefill(function, forge, ids, sizes=(3, 1, 2)) -> Feedback:
    """Notebook 04: `prefill_in_chunks(forge, ids, sizes)` returns all rows' logits and the cache.

    >>> kv.exercises.chunked_prefill(lambda forge, ids, sizes: forge(ids), kv.Forge.small(), ids)
    ✗ not right yet: return two things: the logits of every row, and the cache
    """
    from kvviz.recording.recorder import record

    with record(forge, keep=()) as run:
        answer, problem = run_answer(function, forge, ids, list(sizes))
    if problem and run and problem.state == "not done yet":
        return reject("the forge ran, but your function returned nothing: return logits and cache")
    if problem:
        return problem
    if isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[0], "get"):
        return reject("return the logits first and the cache second")
    if not (isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[1], "get")):
        return reject("return two things: the logits of every row, and the cache")
    logits, cache = answer
    if not isinstance(logits, torch.Tensor):
        return reject("return the logits as one tensor: join the chunks' logits along dim 1")
    if run.rows == [ids.shape[1]]:
        return reject(
            f"rows {ids.shape[1]}: the whole prompt went in at once. Split it into chunks of "
            f"{list(sizes)}."
        )
    if run.rows != list(sizes) and [step.held_after for step in run[1:]] != run.rows[1:]:
        if all(step.token_ids[0, 0] == ids[0, 0] for step in run):
            return reject(
                f"step 1: the cache held {run[1].held_before} and you fed {run[1].fed}, from the "
                "beginning. Feed only the new tokens: the cache holds the rest."
            )
    if len(run) > 1 and run[1].held_before == 0:
        return reject(
            "step 1: the cache held nothing. All chunks go into the same cache: make one before "
            "the loop."
        )
    if run.rows != list(sizes):
        return reject(f"rows {run.rows}: expected chunks of {list(sizes)}")
    right = forge(ids)
    if tuple(logits.shape) != tuple(right.shape):
        return reject(
            f"expected the logits of every row, {tuple(right.shape)}, but got "
            f"{tuple(logits.shape)}: join the chunks' logits along dim 1"
        )
    if not (logits - right).abs().max() <= 1e-5 * right.abs().max():
        return reject("the logits differ from those of one pass: are the chunks in order?")
    held = cache.get(0).keys.shape[2] if cache.get(0) is not None else 0
    if held != ids.shape[1]:
        return reject(f"the cache you return holds {held} tokens, but {ids.shape[1]} were fed")
    return accept(
        f"rows {', '.join(map(str, run.rows))}, and every row's logits are the same as in one pass"
    )


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
