"""Notebooks 00 to 02: describe a step, count positions, write the plain loop, reuse entries."""

from __future__ import annotations

from kvviz import count
from kvviz.exercises.feedback import Feedback, accept, reject, run_answer


def describe(function, *runs) -> Feedback:
    """Notebook 00: `describe(step)` returns (fed, visible, position) for every step of `runs`.

    Raises:
        ValueError: no run was given.

    >>> kv.exercises.describe(lambda step: (step.fed, step.visible, step.visible - 1), run)
    ✓ passed: fed, visible and position are right in every step
    """
    if not runs:
        raise ValueError("describe: expected your function and the runs to try it on, got no run")
    for step in (step for run in runs for step in run):
        answer, problem = run_answer(function, step)
        if problem:
            return problem
        answer = tuple(answer) if isinstance(answer, list) else answer
        right = (step.fed, step.visible, step.visible - 1)
        if not (isinstance(answer, tuple) and [type(part) for part in answer] == [int] * 3):
            return reject(
                f"describe should return three numbers, (fed, visible, position), but got {answer}"
            )
        if answer == right:
            continue
        loop = "with" if step.held_before else "without"
        where = (
            f"step {step.index} of a loop {loop} a cache, fed {step.fed} with {step.held_before} "
            "held before"
        )
        if answer[1] != step.visible and answer[1] == step.fed:
            return reject(
                f"{where}: you say {answer[1]} visible, which is the number fed. The newest row "
                "also sees the tokens held before."
            )
        if answer[1] != step.visible and answer[1] == step.held_before:
            return reject(
                f"{where}: you say {answer[1]} visible, but the newest row has {step.visible} "
                "columns. It sees its own token too."
            )
        if answer[1] == step.held_before + 1 and step.fed > 1:
            return reject(
                f"{where}: you say {answer[1]} visible, which counts one of the {step.fed} tokens "
                "fed. The newest row sees all of them."
            )
        if answer[:2] == right[:2] and answer[2] == step.held_before and step.fed > 1:
            return reject(
                f"{where}: position {answer[2]} is where the first of the {step.fed} tokens fed "
                "sits. The newest is the last of them."
            )
        if answer[:2] == right[:2] and answer[2] == right[2] + 1:
            return reject(f"{where}: position {answer[2]} counts from 1. Positions count from 0.")
        names = ("fed", "visible", "position")
        name, got = next((names[i], answer[i]) for i in range(3) if answer[i] != right[i])
        return reject(f"{where}: {name} isn't {got}. Look at the picture of that step.")
    return accept("fed, visible and position are right in every step")


def positions(function) -> Feedback:
    """Notebook 01: `positions(p, n)`, how many token positions the plain loop runs over.

    >>> kv.exercises.positions(lambda p, n: sum(p + k for k in range(n)))
    ✓ passed: 23,900 positions for 20 and 200, and right for four other lengths too
    """
    cases = [(20, 200), (6, 12), (1, 2), (5, 1), (7, 0)]
    answers = []
    for case in cases:
        answer, problem = run_answer(function, *case)
        if problem:
            return problem
        answers.append(answer)
    right = [count.positions(p, n, cached=False) for p, n in cases]
    if answers == right:
        return accept(
            f"{right[0]:,} positions for 20 and 200, and right for four other lengths too"
        )
    first = next(i for i, pair in enumerate(zip(answers, right, strict=True)) if pair[0] != pair[1])
    (p, n), got = cases[first], answers[first]
    found = f"positions({p}, {n}) returned {got}"
    if answers == [value + p + n for (p, n), value in zip(cases, right, strict=True)]:
        return reject(
            f"{found}, which is n + 1 steps. The prompt's own pass gives the first new token, and "
            "the last new token is never fed."
        )
    if answers == [p * n for p, n in cases]:
        return reject(
            f"{found}, which is n passes over the prompt. The text grows: how long is it at step k?"
        )
    if answers == [count.positions(p, n, cached=True) for p, n in cases]:
        return reject(
            f"{found}, which is right for a loop with a cache. This loop has none: it feeds the "
            "whole text at every step."
        )
    return reject(
        f"{found}. Try positions(1, 2) by hand: step 0 runs over 1 position and step 1 over 2, "
        "which makes 3."
    )


def plain_loop(function, model, ids, n: int = 12) -> Feedback:
    """Notebook 01: check the text and the rows of the loop without a cache.

    `function(model, ids, n)` takes ids (1, p) and returns them with n new ones: (1, p + n).

    >>> kv.exercises.plain_loop(lambda model, ids, n: ids, model, ids)
    ✗ not right yet: your loop never called the model
    """
    from kvviz.recording.recorder import record

    before = ids.clone()
    with record(model, keep=()) as run:
        out, problem = run_answer(function, model, ids, n)
    if problem and run and problem.state == "not done yet":
        return reject("your loop ran the model but returned nothing: return the longer ids")
    if problem:
        return problem
    if not (ids.shape == before.shape and bool((ids == before).all())):
        return reject("your loop changed the prompt it was given: build a longer tensor instead")
    p = ids.shape[1]
    if not run:
        return reject("your loop never called the model")
    rows = _list_rows(run.rows)
    if len(run) == n + 1:
        return reject(
            f"{n + 1} passes for {n} tokens: the prompt's own pass already gives the first new one"
        )
    if getattr(out, "shape", None) != (1, p + n):
        shape = tuple(out.shape) if hasattr(out, "shape") else type(out).__name__
        return reject(
            f"expected the prompt and {n} new tokens, {(1, p + n)}, but your loop returned {shape}"
        )
    if all(step.held_before == 0 for step in run) and run.rows[1:] == [1] * (len(run) - 1):
        return reject(
            f"rows {rows}: from step 1 on, your loop fed one token while nothing was held, so the "
            "model never saw the rest of the text. Without a cache, feed all of it."
        )
    if any(step.held_before for step in run):
        return reject(
            f"rows {rows}: your loop reads from a cache. That comes in notebook 03. Here, feed the "
            "whole text and pass use_cache=False."
        )
    if len(set(run.rows)) == 1 and n > 1:
        return reject(
            f"rows {rows}: the text didn't grow. Feed the new token along with everything before "
            "it."
        )
    if not bool((run[1].token_ids[:, :p] == ids).all()):
        return reject(
            "step 1 was fed a text that doesn't begin with the prompt: append the new token at the "
            "end"
        )
    if run.rows != count.rows(p, n, cached=False):
        return reject(f"rows {', '.join(map(str, run.rows))}: feed the whole text at every step")
    expected = model.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False)
    if not bool((out == expected).all()):
        position = int((out != expected)[0].nonzero()[0])
        return reject(
            f"the text differs from position {position} on: in the last row, take the highest "
            "score (argmax) over the vocabulary"
        )
    return accept(
        f"rows {rows}: {run.positions} positions for {n} tokens, and the same text as "
        "model.generate"
    )


def reusable(function, first, base, last) -> Feedback:
    """Notebook 02: `reusable(a, b)`, which entries of a could replace b's, (layers, positions).

    `base` holds a text's entries, (layers, positions, numbers); `first` and `last` hold those of
    the same text with another first and another last token.

    >>> base = torch.ones(3, 7, 4)
    >>> kv.exercises.reusable(lambda a, b: True, base + 1, base, base + 1)
    ✗ not right yet: expected True or False for each layer and position, (3, 7), but got bool
    """
    rounded = base * (1 + 1e-6)
    cases = {"first": (first, base), "last": (last, base), "rounding": (rounded, base)}
    answers, right = {}, {}
    for name, (a, b) in cases.items():
        answers[name], problem = run_answer(function, a, b)
        if problem:
            return problem
        shape = tuple(getattr(answers[name], "shape", ()))
        if shape != tuple(base.shape[:2]):
            return reject(
                "expected True or False for each layer and position, "
                f"{tuple(base.shape[:2])}, but got {shape or type(answers[name]).__name__}"
            )
        right[name] = (a - b).norm(dim=-1) <= 1e-3 * b.norm(dim=-1)
    answers = {name: answer.bool() for name, answer in answers.items()}
    if not bool(answers["rounding"].all()):
        return reject(
            "two passes over the same text differ in their last digits, and you call some of those "
            "entries different. Allow a small tolerance."
        )
    for name in ("first", "last"):
        off = (answers[name] != right[name]).nonzero()
        if not len(off):
            continue
        if bool((answers[name] == right[name][0]).all()):
            return reject(
                f"with another {name} token, your answer is the same in every layer as in layer 0. "
                "Look higher up: there, an entry also depends on the tokens its token attended to."
            )
        layer, position = off[0].tolist()
        said = "can" if answers[name][layer, position] else "can't"
        return reject(
            f"with another {name} token, you say that layer {layer}, position {position} {said} be "
            "reused. How far did that entry move?"
        )
    return accept("right for another first token, another last token and mere rounding")


def _list_rows(rows):
    shown = ", ".join(map(str, rows[:4]))
    return f"{shown}, ..., {rows[-1]}" if len(rows) > 5 else ", ".join(map(str, rows))
