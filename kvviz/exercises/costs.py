"""Notebooks 07 and 08: what a cache costs in bytes, and what an answer costs in seconds."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from math import isclose
from typing import NamedTuple
from weakref import WeakKeyDictionary

from kvviz import count, progress
from kvviz.arguments import check_flag, check_whole, describe
from kvviz.checking.loop_inputs import check_model, check_prompt
from kvviz.exercises.answers import to_number
from kvviz.exercises.feedback import Feedback, accept, reject, run_answer, with_hints
from kvviz.words import pluralize

# Published sizes. The last model's heads are wider than hidden_size / num_attention_heads.
_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
_MODELS = {
    "SmolLM2 135M": (30, 9, 3, 64, 576),
    "Llama 2 7B": (32, 32, 32, 128, 4096),
    "Llama 3.1 8B": (32, 32, 8, 128, 4096),
    "Qwen3 0.6B": (28, 16, 8, 128, 1024),
}
HUGE = 1e300  # a whole number beyond it can't be divided
_REQUESTS = ((1, 1, 4), (1000, 1, 2), (37, 5, 2), (8192, 3, 1))


class _Case(NamedTuple):
    """What one call of `price` is given, and the name of its model."""

    model: str
    config: object
    tokens: int
    batch_size: int
    bytes_per_number: int


@with_hints(
    "Start with one token in one layer: what is kept of it, and for how many heads?",
    "In each layer, a token leaves one key and one value for each of num_key_value_heads heads, "
    "and each is head_dim numbers long. Then multiply by the layers, the tokens, the sequences and "
    "the bytes of a number.",
)
def price(function) -> Feedback:
    """Notebook 07: `price(config, tokens, batch_size, bytes_per_number)`, the bytes of a cache.

    >>> def price(config, tokens, batch_size, bytes_per_number):
    ...     numbers = 2 * config.num_hidden_layers * config.num_key_value_heads * config.head_dim
    ...     return numbers * tokens * batch_size
    >>> kv.exercises.price(price)
    ✗ not right yet: that counts numbers: each takes bytes_per_number bytes
    """
    cases = _cases()
    answers, right = [], []
    for case in cases:
        answer, problem = run_answer(function, copy.deepcopy(case.config), *case[2:])
        if problem:
            return problem
        if (number := to_number(answer)) is None or number != number:
            return reject(f"price should return a number of bytes, but returned {describe(answer)}")
        answers.append(max(-HUGE, min(number, HUGE)))
        sizes = {"batch_size": case.batch_size, "bytes_per_number": case.bytes_per_number}
        right.append(count.cache_bytes(case.config, case.tokens, **sizes))
    factors = [answer / held for answer, held in zip(answers, right, strict=True)]
    if all(isclose(factor, 1) for factor in factors):
        per_token = f"{right[0]:,.0f} bytes per token for this model in float32"
        return accept(f"{per_token}, and right for three others, at four lengths each")
    for mistake in _MISTAKES:
        if all(isclose(f, mistake.factor(case)) for f, case in zip(factors, cases, strict=True)):
            return reject(mistake.hint)
    if all(isclose(answer, answers[i % len(_REQUESTS)]) for i, answer in enumerate(answers)):
        found = "your answer is the same for every model"
        if all(isclose(factor, 1) for factor in factors[: len(_REQUESTS)]):
            found = "right for this course's model only"
        return reject(f"{found}: read the sizes from config")
    case, factor = next(
        (case, f) for case, f in zip(cases, factors, strict=True) if not isclose(f, 1)
    )
    sizes = f"batch_size {case.batch_size}, bytes_per_number {case.bytes_per_number}"
    return reject(
        f"{case.model}, {pluralize(case.tokens, 'token')}, {sizes}: your answer is {factor:.3g} "
        "times what the tensors take. Which factor is missing, or one too many?"
    )


def _cases() -> list[_Case]:
    from kvviz.models import load_config

    cases = []
    for name, (*sizes, hidden_size) in _MODELS.items():
        fields = {"model_type": "llama", "hidden_size": hidden_size}
        config = load_config(fields | dict(zip(_SIZES, sizes, strict=True)))
        cases += [_Case(name, config, *request) for request in _REQUESTS]
    return cases


class _Mistake(NamedTuple):
    """A typical mistake: the factor by which it makes an answer wrong, and a hint."""

    factor: Callable[[_Case], float]
    hint: str


def _query_heads(case):
    return case.config.num_attention_heads / case.config.num_key_value_heads


def _hidden_size(case):
    return case.config.hidden_size / (case.config.num_key_value_heads * case.config.head_dim)


def _divided_width(case):
    return case.config.hidden_size / case.config.num_attention_heads / case.config.head_dim


def _unit(bytes_per_unit):
    return lambda case: 1 / bytes_per_unit


_UNITS = (1000, 1000**2, 1000**3, 1024, 1024**2, 1024**3)
_MISTAKES = (
    _Mistake(
        _query_heads,
        "three times too high for this course's model, where three query heads share each "
        "key/value head: count the key/value heads",
    ),
    _Mistake(
        _hidden_size,
        "the cache doesn't hold hidden_size numbers: count the key/value heads, each head_dim wide",
    ),
    _Mistake(lambda _: 1 / 2, "that is half the cache: there are keys and there are values"),
    _Mistake(
        _divided_width,
        "right only where the query heads' widths add up to hidden_size, which they don't have to: "
        "the config gives you head_dim",
    ),
    _Mistake(
        lambda case: 1 / case.config.num_hidden_layers,
        "that is one layer: each layer has its own keys and values",
    ),
    _Mistake(
        lambda case: 1 / case.batch_size,
        "right for one sequence: with batch_size sequences, each has its own keys and values",
    ),
    _Mistake(
        lambda case: 1 / case.bytes_per_number,
        "that counts numbers: each takes bytes_per_number bytes",
    ),
    _Mistake(
        lambda case: 4 / case.bytes_per_number,
        "right for float32 only: bytes_per_number says how many bytes each number takes",
    ),
    _Mistake(lambda _: 8, "those are bits: return bytes"),
    *(
        _Mistake(_unit(unit), "return bytes, not thousands, millions or billions of them")
        for unit in _UNITS
    ),
)


@with_hints(
    "An answer is one prefill, followed by decode steps. You've measured the time of both.",
    "The first new token comes out of the prefill, so n - 1 decode steps follow. Prefill takes p "
    "times the seconds that one row of a long prompt takes.",
)
def prediction(
    function, model, ids, n: int = 200, *, again: bool = False, clock=time.perf_counter
) -> Feedback:
    """Notebook 08: `predict(p, n)`, the seconds an answer of n tokens to a prompt of p takes.

    The answer is then generated with a cache and timed. A prediction passes if it's within a factor
    of two.

    Args:
        ids: the prompt, (1, p).
        again: time it again; otherwise each answer is timed once.
        clock: returns seconds; only differences are used.

    Raises:
        TypeError: `model` isn't a model of `transformers`, or `clock` no function.
        ValueError: `ids` isn't one prompt of that model, `n` isn't 1 to 10,000, or `again` no bool.

    >>> kv.exercises.prediction(lambda p, n: -1, model, ids)
    ✗ not right yet: predict should return seconds, a number above zero, but returned -1
    """
    check_model(model)
    check_prompt(ids, model)
    n, again = check_whole("n", n, least=1, most=10_000), check_flag("again", again)
    if not callable(clock):
        raise TypeError(f"clock: expected a function, but got {describe(clock)}")
    p = ids.shape[1]
    answer, problem = run_answer(function, p, n)
    if problem:
        return problem
    predicted = to_number(answer)
    if predicted is None or not 0 < predicted < HUGE:
        came = describe(answer)
        return reject(f"predict should return seconds, a number above zero, but returned {came}")
    timing, is_new = _time_answer(model, ids, n, again, clock)
    took, per_row = timing.answer, timing.prompt_row
    found = f"you said {predicted:.3g} seconds for {n} tokens, and they took {took:.3g}"
    if _is_within(predicted, took, factor=2):
        return accept(f"{found}: within a factor of two")
    found += "" if is_new else " (timed before; again=True times it again)"
    if _is_within(predicted / 1000, took, factor=2):
        return reject(f"{found}: in milliseconds, that would be right; return seconds")
    if predicted < took and _is_within(predicted, (p + n) * per_row, factor=2.5):
        return reject(
            f"{found}. Prefill's speed for all tokens would give about that: there, the whole "
            "prompt shares one reading of the weights. A decode step reads all weights for one "
            "token."
        )
    plain_loop = count.positions(p, n, cached=False) * per_row
    if predicted > took and _is_within(predicted, plain_loop, factor=2.5):
        return reject(
            f"{found}. Recomputing every row at every step would take about that. With a cache, "
            "it's one row a step."
        )
    times = max(predicted / took, took / predicted)
    much = "high" if predicted > took else "low"
    found += f": {times:.1f} times too {much}. What does one step take, and how many are there?"
    if _is_within(n / predicted, took, factor=2):
        found += " Or are these tokens per second? Then return seconds."
    return reject(found)


def _is_within(one: float, other: float, *, factor: float) -> bool:
    return other / factor <= one <= other * factor


class _Timing(NamedTuple):
    """Seconds of a whole answer, and of one row of a long prompt."""

    answer: float
    prompt_row: float


_timings = WeakKeyDictionary()  # per model: an answer takes many seconds, so it's timed once


def _time_answer(model, ids, n: int, again: bool, clock) -> tuple[_Timing, bool]:
    """How long an answer of n tokens takes, and whether that was timed just now."""
    import torch

    timings, request = _timings.setdefault(model, {}), (*ids.flatten().tolist(), n)
    if not again and request in timings:
        return timings[request], False
    prompt = ids.repeat(1, 256 // ids.shape[1] + 1)[:, :256]
    with torch.no_grad():
        start, cache, fed = clock(), None, ids
        for _ in progress.bar(range(n), desc="answering", unit=" tokens"):
            out = model(fed, cache=cache, use_cache=True)
            cache, fed = out.cache, out.logits[:, -1:].argmax(-1)
        took, start = clock() - start, clock()
        model(prompt, use_cache=False)
        timings[request] = _Timing(took, (clock() - start) / prompt.shape[1])
    return timings[request], True
