"""Notebook 04: the cache, the forward pass that uses it, the mask, and a prompt in chunks."""

from __future__ import annotations

from dataclasses import replace

import torch

from kvviz.arguments import check_whole, describe, list_several
from kvviz.checking.cache import check_cache
from kvviz.checking.contract import parts
from kvviz.checking.learner_code import calls
from kvviz.checking.loop_inputs import check_prompt
from kvviz.checking.verdict import Verdict
from kvviz.exercises.answers import to_bools, to_tensor
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, run_answer, with_hints
from kvviz.exercises.pictures import picture_of_first_difference, picture_of_run
from kvviz.forge import Forge, KVCache
from kvviz.forge import causal_mask as the_forges_own
from kvviz.words import pluralize


@with_hints(
    "Nothing is appended here. What is the simplest thing that holds one entry for each layer, and "
    "None until there is one?",
    "A list, [None] * n_layers. `get` reads one of its places, `update` replaces it, and `reset` "
    "makes a new list.",
)
def cache(cache_class) -> Verdict:
    """Notebook 04: a class with `get`, `update` and `reset`, as `check_cache` judges it.

    Raises:
        TypeError: `cache_class` isn't a class.

    >>> kv.exercises.cache(kv.faults.stale_cache.cache_class).verdict.cause
    'stale cache'
    """
    return check_cache(cache_class)


@with_hints(
    "Follow one call: where does it start, and where does it end? What do the rotation and the "
    "mask need to know? And then, in each layer: what is read, what runs, what is written?",
    "It starts at cache.held, or at 0 without a cache, and ends t later. In each layer, the past "
    "is cache.get(layer); self.block hands back x and the longer entry; cache.update puts that "
    "entry into the slot.",
)
def forward(forge_class) -> Verdict:
    """Notebook 04: a `Forge` with its own `positions` and `forward`, as `check_cache` judges it.

    Raises:
        TypeError: `forge_class` isn't a class, or no `Forge`.

    >>> kv.exercises.forward(kv.Forge).passed
    True
    """
    verdict = check_cache(forge_class=forge_class)
    if verdict.passed and calls(Forge.forward, forge_class.small(), torch.tensor([[1, 2]])):
        says = "it's Forge's own forward that ran: now write it yourself"
        verdict = replace(verdict, remarks=(*verdict.remarks, says))
    return verdict


@with_hints(
    "Write down the positions of the rows, and those of the columns. Which columns may the row at "
    "position 4 see?",
    "The columns are at torch.arange(pos_end), the rows at torch.arange(pos_start, pos_end). Stand "
    "the rows upright with [:, None], and compare the two: that gives (t, pos_end).",
)
def causal_mask(function) -> Feedback:
    """Notebook 04: `causal_mask(t, pos_start, pos_end)`, True where a row may see a column.

    >>> kv.exercises.causal_mask(lambda t, s, e: torch.arange(e) <= torch.arange(s, e)[:, None])
    ✓ passed: right for a prompt, for 3 rows with 4 held, for 2 with 3 held, and for a single row
    """
    only_bools = True
    for t, start in ((6, 0), (3, 4), (2, 3), (1, 6), (1, 0)):
        end = start + t
        answer, problem = run_answer(function, t, start, end)
        if t == 1 and problem is NOT_DONE:
            continue  # None: a single row may see every column
        if problem:
            return problem
        found = f"{pluralize(t, 'row')} with {start} held"
        given = to_tensor(answer)
        shape = () if given is None else tuple(given.shape)
        if shape == (t, t) and start:
            return reject(
                f"{found}: your mask is {t} x {t}, but the keys held need columns too: {t} x {end}."
            )
        kind, answer = type(answer).__name__, to_bools(answer, (t, end))
        if answer is None and given is not None and bool((given == -torch.inf).any()):
            return reject(
                f"{found}: 0 and -inf are what a mask adds to the scores. Return True where a row "
                "may see a column, and False where it may not."
            )
        if answer is None:
            got = "other numbers than 0 and 1" if shape == (t, end) else f"shape {shape}"
            got = got if given is not None else kind
            return reject(f"{found}: expected True or False, shape ({t}, {end}), but got {got}")
        only_bools = only_bools and kind == "Tensor" and given.dtype == torch.bool
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
    more = "" if only_bools else ". The forge needs a tensor of booleans: add .bool()"
    if calls(the_forges_own, function, 2, 3, 5):
        more = "; it's the forge's own mask, though: now write it yourself"
    return accept(
        f"right for a prompt, for 3 rows with 4 held, for 2 with 3 held, and for a single row{more}"
    )


@with_hints(
    "What one chunk leaves in the cache, the next one needs. So when is the cache made?",
    "ids.split(sizes, dim=1) gives the chunks. Feed each of them with the same cache, keep the "
    "logits that come back, and join them along dim 1.",
)
def chunked_prefill(function, forge, ids, sizes=(3, 1, 2)) -> Feedback:
    """Notebook 04: `prefill_in_chunks(forge, ids, sizes)` returns all rows' logits and the cache.

    Raises:
        TypeError: `forge` isn't a `Forge`.
        ValueError: `ids` isn't one prompt, or `sizes` aren't whole numbers that add up to it.

    >>> kv.exercises.chunked_prefill(lambda forge, ids, sizes: forge(ids), kv.Forge.small(), ids)
    ✗ not right yet: return two things: the logits of every row, and the cache
    """
    from kvviz.recording.recorder import record

    if not isinstance(forge, Forge):
        raise TypeError(f"forge: expected a Forge, but got {describe(forge)}")
    check_prompt(ids)
    sizes = list_several("sizes", sizes, "sizes of chunks, such as (3, 1, 2)")
    if sum(check_whole("sizes", size, least=1) for size in sizes) != ids.shape[1]:
        came = describe(tuple(sizes))
        raise ValueError(f"sizes: expected some that add up to {ids.shape[1]}, but got {came}")
    with record(forge, keep=("attention",)) as run:
        answer, problem = run_answer(function, forge, ids, list(sizes))
    if problem and run and problem.state == "not done yet":
        return reject("the forge ran, but your function returned nothing: return logits and cache")
    if problem:
        return problem
    answer = tuple(answer) if isinstance(answer, list) else answer
    if isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[0], "get"):
        return reject("return the logits first and the cache second")
    if not (isinstance(answer, tuple) and len(answer) == 2 and hasattr(answer[1], "get")):
        return reject("return two things: the logits of every row, and the cache")
    logits, held_by = answer
    logits = to_tensor(logits)
    if not isinstance(logits, torch.Tensor):
        return reject("return the logits as one tensor: join the chunks' logits along dim 1")
    if wrong := _judge_chunks(run, ids, list(sizes)):
        return replace(wrong, picture=_draw_wrong_chunk(run, forge, ids, list(sizes)))
    right = forge(ids)
    if tuple(logits.shape) != tuple(right.shape):
        return reject(
            f"expected the logits of every row, {tuple(right.shape)}, but got "
            f"{tuple(logits.shape)}: join the chunks' logits along dim 1"
        )
    if not (logits - right).abs().max() <= 1e-5 * right.abs().max():
        return reject(
            "the logits differ from those of one pass: are the chunks in order?",
            _draw_wrong_chunk(run, forge, ids, list(sizes)),
        )
    entry = parts(held_by.get(0))
    held = 0 if entry is None else entry[0].shape[2]
    if held != ids.shape[1]:
        return reject(f"the cache you return holds {held} tokens, but {ids.shape[1]} were fed")
    return accept(
        f"rows {', '.join(map(str, run.rows))}, and every row's logits are the same as in one pass",
        picture_of_run(run),
    )


def _judge_chunks(run, ids, sizes: list[int]) -> Feedback | None:
    """What is wrong with what was fed, and held before it; None if nothing is."""
    if run.rows == [ids.shape[1]]:
        return reject(
            f"rows {ids.shape[1]}: the whole prompt went in at once. Split it into chunks of "
            f"{sizes}."
        )
    if run.rows != sizes and [step.held_after for step in run[1:]] != run.rows[1:]:
        if all(step.token_ids[0, 0] == ids[0, 0] for step in run):
            return reject(
                f"step 1: the cache held {run[1].held_before} and you fed {run[1].fed}, from the "
                "beginning. Feed only the new tokens: the cache holds the rest."
            )
    if problem := _find_uncached(run) or _find_wrong_tokens(run, ids):
        return problem
    if len(run) > 1 and run[1].held_before == 0:
        return reject(
            "step 1: the cache held nothing. All chunks go into the same cache: make one before "
            "the loop."
        )
    if run.rows != sizes:
        return reject(f"rows {run.rows}: expected chunks of {sizes}")
    return None


def _draw_wrong_chunk(run, forge, ids, sizes: list[int]):
    """The first step that was fed or held something else than the right chunk, beside that one."""
    from kvviz.recording.recorder import record

    cache = KVCache(len(forge.layers))
    with record(forge, keep=("attention",)) as right:
        for chunk in ids.split(sizes, dim=1):
            forge(chunk, cache)
    return picture_of_first_difference(run, right)


def _find_uncached(run) -> Feedback | None:
    """A call that was given no cache."""
    step = next((step for step in run if not step.cached), None)
    if step is None:
        return None
    return reject(
        f"step {step.index}: the call had no cache. Pass it in every call: forge(chunk, cache)"
    )


def _find_wrong_tokens(run, ids) -> Feedback | None:
    """The first token that was fed twice, left out, or fed in another order."""
    text, start = ids[0].tolist(), 0
    for step in run:
        fed = step.token_ids[0].tolist()
        right, n = text[start : start + len(fed)], len(fed)
        if fed != right:
            found = f"step {step.index}: "
            starts = sorted(range(len(text) - n + 1), key=lambda at: abs(at - start))
            at = next((at for at in starts if text[at : at + n] == fed), start)
            if at < start:
                again = f"token {fed[0]}, position {at} of the prompt, was fed twice"
                return reject(f"{found}{again}. Begin each chunk where the last one ended.")
            if at > start:
                out = f"token {text[start]}, position {start} of the prompt, was left out"
                return reject(f"{found}{out}. Begin each chunk where the last one ended.")
            i = next(
                (i for i, pair in enumerate(zip(fed, right, strict=False)) if pair[0] != pair[1]),
                None,
            )
            if i is None:
                return reject(f"{found}more tokens were fed than the prompt has")
            came = f"token {fed[i]} was fed at position {start + i}, where the prompt has"
            return reject(f"{found}{came} {right[i]}: are the chunks in order?")
        start += n
    if start < len(text):
        left = f"token {text[start]}, position {start} of the prompt, was left out"
        return reject(f"{left}: the chunks end there")
    return None
