"""Notebook 04: the mask, and a prompt in chunks."""

from __future__ import annotations

import torch

from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, run_answer
from kvviz.words import pluralize


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
