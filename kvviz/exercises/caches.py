"""Notebooks 04 to 06: the mask, a prompt in chunks, rounding or bug, three unknown caches."""

from __future__ import annotations

import torch

from kvviz.checking.cache import check_cache
from kvviz.exercises.feedback import NOT_DONE, Feedback, passed, tried, wrong
from kvviz.faults import GALLERY
from kvviz.forge import KVCache

_UNKNOWN = {
    "X": GALLERY["keys and values in front"],
    "Y": GALLERY["position counted twice"],
    "Z": GALLERY["store never read"],
}
X, Y, Z = (type(name, (fault.forge_class,), {}) for name, fault in _UNKNOWN.items())


def causal_mask(function) -> Feedback:
    """Notebook 04: `causal_mask(t, pos_start, pos_end)`, true where a row may look."""
    for t, start in ((6, 0), (3, 4), (2, 3), (1, 6), (1, 0)):
        end = start + t
        answer, problem = (None, None) if t == 1 else tried(function, t, start, end)
        if t == 1 and (answer := function(t, start, end)) is None:
            continue  # one row may look everywhere
        if problem:
            return problem
        found = f"{t} row{'s' * (t > 1)} on {start} held"
        shape = tuple(getattr(answer, "shape", ()))
        if shape == (t, t) and start:
            return wrong(
                f"{found}: your mask is {t} x {t}. Held keys need columns too: {t} x {end}."
            )
        if shape != (t, end) or answer.dtype != torch.bool:
            got = f"{shape}, {answer.dtype}" if shape else type(answer).__name__
            return wrong(f"{found}: expected truths, a bool tensor ({t}, {end}); got {got}")
        rows, columns = torch.arange(start, end)[:, None], torch.arange(end)
        right = columns <= rows
        if torch.equal(answer, right):
            continue
        sees, should = int(answer[0].sum()), start + 1
        if torch.equal(answer, ~right):
            return wrong(f"{found}: yours is true where a row may not look. Turn it round.")
        if torch.equal(answer, columns < rows):
            return wrong(f"{found}: no row of yours sees itself. A token looks at its own key too.")
        if torch.equal(answer, columns <= rows - start):
            many = f"{sees} key{'s' * (sees != 1)}"
            return wrong(
                f"{found}: the first new query sees {many} and should see {should}. The triangle "
                "belongs at the bottom right."
            )
        i, j = (answer != right).nonzero()[0].tolist()
        may = "may" if answer[i, j] else "may not"
        return wrong(f"{found}: you say that row {i}, at place {start + i}, {may} see place {j}")
    return passed("right for a prompt, for chunks of 3 on 4 held and 2 on 3, and for one row")


def chunked_prefill(function, forge, ids, sizes=(3, 1, 2)) -> Feedback:
    """Notebook 04: `chunked(forge, ids, sizes)`, the logits of all rows and the cache filled."""
    from kvviz.recording.recorder import record

    with record(forge, keep=()) as run:
        answer, problem = tried(function, forge, ids, list(sizes))
    if problem and run and problem.state == "not done yet":
        return wrong("the forge ran, and your function returned nothing: return logits and cache")
    if problem:
        return problem
    if isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[0], "get"):
        return wrong("return the logits first, and then the cache")
    if not (isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[1], "get")):
        return wrong("return two things: the logits of every row, and the cache")
    logits, cache = answer
    if not isinstance(logits, torch.Tensor):
        return wrong("return the logits as one tensor: join the chunks' along dim 1")
    if run.rows == [ids.shape[1]]:
        return wrong(f"rows {ids.shape[1]}: the whole prompt went in at once. Cut it into {sizes}.")
    if run.rows != list(sizes) and [step.held_after for step in run[1:]] != run.rows[1:]:
        if all(step.token_ids[0, 0] == ids[0, 0] for step in run):
            return wrong(
                f"step 1: the store held {run[1].held_before} and you fed {run[1].fed}, from the "
                "beginning. What is held need not be fed: feed what is new alone."
            )
    if len(run) > 1 and run[1].held_before == 0:
        return wrong(
            "step 1: the store held nothing. Every chunk goes into the same cache: make one before "
            "the loop."
        )
    if run.rows != list(sizes):
        return wrong(f"rows {run.rows}, and chunks of {list(sizes)} were asked for")
    right = forge(ids)
    if tuple(logits.shape) != tuple(right.shape):
        return wrong(
            f"logits {tuple(logits.shape)}, and every row's were asked for, {tuple(right.shape)}: "
            "join the chunks' along dim 1"
        )
    if not (logits - right).abs().max() <= 1e-5 * right.abs().max():
        return wrong("the logits differ from those of one pass: are the chunks in their order?")
    held = cache.get(0).keys.shape[2] if cache.get(0) is not None else 0
    if held != ids.shape[1]:
        return wrong(f"the cache you return holds {held} tokens, and {ids.shape[1]} were fed")
    return passed(f"rows {', '.join(map(str, run.rows))}, and every row's logits as in one pass")


def is_rounding(function) -> Feedback:
    """Notebook 05: `is_rounding(gap32, gap64, scale)`; gaps in logits, and the largest logit."""
    tiny = "A tiny bug passes: it is as small in float32, and it does not move in float64."
    large = "The gap grows with the logits: a gate must be relative to the largest."
    cases = (
        (8.8e-6, 1.3e-14, 8.9, True, "That is the right cache on the small model."),
        (6.4e-5, 2.2e-13, 31.9, True, large),
        (3.1e-3, 8.0e-12, 900.0, True, large),
        (0.0, 0.0, 5.0, True, "No gap at all is no bug."),
        (11.1, 11.1, 31.9, False, "That is a token written twice."),
        (4.0e-6, 3.9e-6, 31.9, False, tiny),
        (6.6e-5, 7.0e-6, 31.9, False, tiny),
        (2.0e-6, 1.9e-6, 0.5, False, tiny),
        (1.1, 4.0e-9, 3.0e5, True, large),
        (8.1e-10, 8.0e-10, 1e-3, False, tiny),
    )
    for gap32, gap64, scale, right, why in cases:
        answer, problem = tried(function, gap32, gap64, scale)
        if problem:
            return problem
        if not isinstance(answer, bool):
            return wrong(f"is_rounding should say True or False, and said {answer!r}")
        if answer != right:
            word = "rounding" if answer else "a bug"
            return wrong(
                f"gap {gap32:g} in float32 and {gap64:g} in float64, logits to {scale:g}: you say "
                f"{word}. {why}"
            )
    return passed(f"right in {len(cases)} cases: rounding falls in float64, a bug does not move")


_RIGHT = {
    "X": {"wrong order", "keys and values in front"},
    "Y": {"position counted twice"},
    "Z": {"store never read"},
}
_HINTS = {
    (
        "X",
        "fine",
    ): "Its tokens and logits are. Feed 3 + 1 + 2: one query does not mind, a chunk does.",
    (
        "X",
        "precision",
    ): "The entries differ by more than rounding, and the logits by no more than it.",
    ("Y", "precision"): "Rounding would touch the values too, and in layer 0 they are equal.",
    ("Y", "fine"): "The tokens are equal on this prompt. Look at the gap, and at the keys.",
    ("Z", "fine"): "Every number is right. Look at what it computed: count the rows.",
}


def diagnose(answers) -> Feedback:
    """Notebook 06: `answers` {"X": name, "Y": name, "Z": name} of the three unknown caches."""
    if not isinstance(answers, dict) or set(answers) != set(_RIGHT):
        raise ValueError(f"diagnose takes answers for X, Y and Z, and got {answers!r}")
    if any(answer is ... or answer is None for answer in answers.values()):
        return Feedback("not done yet", "replace each ... by the name of a fault, or by 'fine'")
    names = {"fine", "precision", "wrong order", *GALLERY}
    for which, answer in answers.items():
        answer = answer.strip().lower() if isinstance(answer, str) else answer
        if answer in _RIGHT[which]:
            continue
        if answer not in names:
            return wrong(f"{which}: {answer!r} is none of these: {', '.join(sorted(names))}")
        hint = _HINTS.get((which, answer), "Which check caught it, and what differs first?")
        return wrong(f"{which} is not {answer!r}. {hint}")
    return passed("X in the wrong order, Y counted twice, Z never read: all three found")


def fixed(**classes) -> Feedback:
    """Notebook 06: X, Y and Z, each fixed in a subclass that overrides one method again."""
    if set(classes) != set(_RIGHT):
        raise ValueError(f"fixed takes X=..., Y=... and Z=..., and got {sorted(classes)}")
    for name, kind in classes.items():
        broken = {"X": X, "Y": Y, "Z": Z}[name]
        if not (isinstance(kind, type) and issubclass(kind, broken)):
            return wrong(f"{name}: fix it in a subclass, class Fixed{name}(kv.exercises.{name})")
        verdict = check_cache(KVCache, kind)
        if verdict.cause == "not done yet":
            return NOT_DONE
        if not verdict.passed:
            return wrong(f"{name}, {verdict.headline}. {verdict.advice}")
    return passed("all three equal in tokens, logits, keys and values, in chunks too; 1 row a step")
