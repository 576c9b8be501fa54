"""Notebooks 00 to 02: reading a step, counting, the plain loop, what may be used again."""

from __future__ import annotations

from kvviz import count
from kvviz.exercises.feedback import Feedback, passed, tried, wrong


def describe(function, *runs) -> Feedback:
    """Notebook 00: `describe(step)` gives (fed, held, position) for every step of `runs`."""
    if not runs:
        raise ValueError("describe takes your function and the runs to try it on, and got no run")
    for step in (step for run in runs for step in run):
        answer, problem = tried(function, step)
        if problem:
            return problem
        answer = tuple(answer) if isinstance(answer, list) else answer
        right = (step.fed, step.visible, step.visible - 1)
        if not (isinstance(answer, tuple) and [type(part) for part in answer] == [int] * 3):
            return wrong(
                f"describe should return three numbers, (fed, held, position); got {answer}"
            )
        if answer == right:
            continue
        kind = "a loop with a store" if step.held_before else "a loop without a store"
        found = f"in step {step.index} of {kind}, fed {step.fed} and held {step.held_before} before"
        if answer[1] != step.visible and answer[1] == step.fed:
            return wrong(
                f"{found}: you say {answer[1]} held, which is what was fed. The row also sees what "
                "was there before."
            )
        if answer[1] != step.visible and answer[1] == step.held_before:
            return wrong(
                f"{found}: you say {answer[1]} held, and the row has {step.visible} columns. The "
                "new token sees itself."
            )
        if answer[:2] == right[:2] and answer[2] == right[2] + 1:
            return wrong(f"{found}: position {answer[2]} counts from 1. Here the first is 0.")
        names = ("fed", "held", "position")
        name, got = next((names[i], answer[i]) for i in range(3) if answer[i] != right[i])
        return wrong(f"{found}: {name} is not {got}. Look at the picture of that step.")
    return passed("fed, held and position are right in every step of both runs")


def positions(function) -> Feedback:
    """Notebook 01: `positions(p, n)`, token positions that the plain loop runs over."""
    cases = [(20, 200), (6, 12), (1, 2), (5, 1), (7, 0)]
    answers = []
    for case in cases:
        answer, problem = tried(function, *case)
        if problem:
            return problem
        answers.append(answer)
    right = [count.positions(p, n, cached=False) for p, n in cases]
    if answers == right:
        return passed(
            f"{right[0]:,} positions for 20 and 200, and right for four other lengths too"
        )
    first = next(i for i, pair in enumerate(zip(answers, right, strict=True)) if pair[0] != pair[1])
    (p, n), got = cases[first], answers[first]
    found = f"positions({p}, {n}) gave {got}"
    if answers == [value + p + n for (p, n), value in zip(cases, right, strict=True)]:
        return wrong(
            f"{found}: that is n + 1 steps. The first new token comes out of the prompt's own "
            "pass, and the last one is never fed."
        )
    if answers == [p * n for p, n in cases]:
        return wrong(
            f"{found}: that is n passes over the prompt. The sentence grows: how long is it at "
            "step k?"
        )
    if answers == [count.positions(p, n, cached=True) for p, n in cases]:
        return wrong(
            f"{found}: that is what a loop with a store runs over. This one has none: it feeds the "
            "whole sentence at every step."
        )
    return wrong(
        f"{found}. Try positions(1, 2) by hand: step 0 runs over 1 position, step 1 over 2, "
        "so it is 3."
    )


def plain_loop(function, model, ids, n: int = 12) -> Feedback:
    """Notebook 01: the loop with no store, recorded: its text and its rows.

    `function(model, ids, n)` takes ids (1, p) and returns them with n new ones, (1, p + n).
    """
    from kvviz.recording.recorder import record

    before = ids.clone()
    with record(model, keep=()) as run:
        out, problem = tried(function, model, ids, n)
    if problem and run and problem.state == "not done yet":
        return wrong("your loop ran the model but returned nothing: return the longer ids")
    if problem:
        return problem
    if not (ids.shape == before.shape and bool((ids == before).all())):
        return wrong("your loop changed the prompt it was given: build a longer tensor instead")
    p = ids.shape[1]
    if not run:
        return wrong("your loop never called the model")
    rows = _in_words(run.rows)
    if len(run) == n + 1:
        return wrong(
            f"{n + 1} passes for {n} tokens: the first new token comes out of the prompt's own pass"
        )
    if getattr(out, "shape", None) != (1, p + n):
        shape = tuple(out.shape) if hasattr(out, "shape") else type(out).__name__
        return wrong(
            f"return the prompt and the {n} new tokens, {(1, p + n)}: your loop returned {shape}"
        )
    if all(step.held_before == 0 for step in run) and run.rows[1:] == [1] * (len(run) - 1):
        return wrong(
            f"rows {rows}: from step 1 on your loop fed one token and held nothing, so the model "
            "had never seen the sentence. With no store, feed all of it."
        )
    if any(step.held_before for step in run):
        return wrong(
            f"rows {rows}: your loop reads from a store. That is for notebook 03; here, feed the "
            "whole sentence and pass use_cache=False."
        )
    if len(set(run.rows)) == 1 and n > 1:
        return wrong(
            f"rows {rows}: the sentence did not grow. Feed the new token along with everything "
            "before it."
        )
    if not bool((run[1].token_ids[:, :p] == ids).all()):
        return wrong(
            "step 1 was fed a sentence that does not begin with the prompt: the new token goes "
            "behind it"
        )
    if run.rows != count.rows(p, n, cached=False):
        return wrong(f"rows {', '.join(map(str, run.rows))}: feed the whole sentence at every step")
    expected = model.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False)
    if not bool((out == expected).all()):
        place = int((out != expected)[0].nonzero()[0])
        return wrong(
            f"the text differs from place {place} on: take the highest score (argmax) over the "
            "vocabulary, in the last row"
        )
    return passed(
        f"rows {rows}: {run.positions} positions for {n} tokens, and the same text as "
        "model.generate"
    )


def reusable(function, first, base, last) -> Feedback:
    """Notebook 02: `reusable(a, b)`, which entries (layers, places) of a may stand in for b's.

    `base` are a text's entries, (layers, places, numbers); `first` and `last` those of the same
    text with another first and another last token.
    """
    rounded = base * (1 + 1e-6)
    cases = {"first": (first, base), "last": (last, base), "rounding": (rounded, base)}
    answers, right = {}, {}
    for name, (a, b) in cases.items():
        answers[name], problem = tried(function, a, b)
        if problem:
            return problem
        shape = tuple(getattr(answers[name], "shape", ()))
        if shape != tuple(base.shape[:2]):
            return wrong(
                "reusable should return one truth for each layer and place, "
                f"{tuple(base.shape[:2])}, and returned {shape or type(answers[name]).__name__}"
            )
        right[name] = (a - b).norm(dim=-1) <= 1e-3 * b.norm(dim=-1)
    answers = {name: answer.bool() for name, answer in answers.items()}
    if not bool(answers["rounding"].all()):
        return wrong(
            "two passes over the same text differ in their last digits, and you call some of those "
            "entries different. Allow a small tolerance."
        )
    for name in ("first", "last"):
        off = (answers[name] != right[name]).nonzero()
        if not len(off):
            continue
        if bool((answers[name] == right[name][0]).all()):
            return wrong(
                f"with another {name} token your answer is layer 0's in every layer. Look higher "
                "up: there an entry also holds what its token has seen."
            )
        layer, place = off[0].tolist()
        said = "may" if answers[name][layer, place] else "may not"
        return wrong(
            f"with another {name} token you say that layer {layer}, place {place} {said} be used "
            "again. How far did that entry move?"
        )
    return passed("right for another first token, another last one, and for mere rounding")


def _in_words(rows):
    shown = ", ".join(map(str, rows[:4]))
    return f"{shown}, ..., {rows[-1]}" if len(rows) > 5 else ", ".join(map(str, rows))
