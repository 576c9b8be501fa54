"""Notebooks 07 and 08: the price of a cache in bytes, and of an answer in seconds."""

from __future__ import annotations

import copy
import time
from math import inf, isclose
from numbers import Real
from weakref import WeakKeyDictionary

from kvviz import count, progress
from kvviz.exercises.feedback import Feedback, passed, tried, wrong

# Published sizes; the last one's heads are wider than hidden_size / num_attention_heads.
_SIZES = ("num_hidden_layers", "num_attention_heads", "num_key_value_heads", "head_dim")
_PRICED = {
    "SmolLM2 135M": (30, 9, 3, 64, 576),
    "Llama 2 7B": (32, 32, 32, 128, 4096),
    "Llama 3.1 8B": (32, 32, 8, 128, 4096),
    "Qwen3 0.6B": (28, 16, 8, 128, 1024),
}
_ASKED = ((1, 1, 4), (1000, 1, 2), (37, 5, 2), (8192, 3, 1))  # tokens, batch, bytes a number


def price(function) -> Feedback:
    """Notebook 07: `price(config, tokens, batch, size)`, bytes of keys and values held."""
    from kvviz.models import load_config

    configs = {
        name: load_config(
            {"model_type": "llama", "hidden_size": hidden, **dict(zip(_SIZES, sizes, strict=True))}
        )
        for name, (*sizes, hidden) in _PRICED.items()
    }
    cases = [(name, *asked) for name in configs for asked in _ASKED]
    answers, right = [], []
    for name, tokens, batch, size in cases:
        answer, problem = tried(function, copy.deepcopy(configs[name]), tokens, batch, size)
        if problem:
            return problem
        if (number := _number(answer)) is None:
            return wrong(f"price should return a number of bytes, and gave {answer!r}")
        answers.append(number)
        held = count.cache_bytes(configs[name], tokens, batch_size=batch, bytes_per_number=size)
        right.append(held)
    off = [answer / held for answer, held in zip(answers, right, strict=True)]
    if all(isclose(times, 1) for times in off):
        first = f"{right[0]:,.0f} bytes a token here in float32"
        return passed(f"{first}, and right for three other models, at four lengths each")
    for mistake, hint in _MISTAKES:
        factors = (mistake(configs[name], *rest) for name, *rest in cases)
        if all(isclose(*pair) for pair in zip(off, factors, strict=True)):
            return wrong(hint)
    first = next(k for k, times in enumerate(off) if not isclose(times, 1))
    name, tokens, batch, size = cases[first]
    return wrong(
        f"{name}, {tokens} token{'s' * (tokens > 1)}, batch {batch}, {size} bytes a number: yours "
        f"is {off[first]:.3g} times what its tensors hold. Which factor is missing, or too many?"
    )


def _number(answer) -> float | None:
    """A number of Python, or the one in a tensor or an array; None if it is none."""
    if getattr(answer, "ndim", None) == 0:
        answer = answer.item()
    if not isinstance(answer, Real) or isinstance(answer, bool):
        return None
    try:
        return float(answer)
    except OverflowError:
        return inf


# What a typical wrong answer is off by, and its hint.
_MISTAKES = (
    (
        lambda config, *_: config.num_attention_heads / config.num_key_value_heads,
        "three times high for this course's model, where three query heads share a pair of keys "
        "and values: count the key/value heads",
    ),
    (
        lambda config, *_: config.hidden_size / config.num_key_value_heads / config.head_dim,
        "hidden_size is not what is kept: count the key/value heads, each as wide as head_dim says",
    ),
    (lambda *_: 0.5, "half of what is held: there are keys and there are values"),
    (
        lambda config, *_: config.hidden_size / config.num_attention_heads / config.head_dim,
        "right where the heads' widths add up to hidden_size, and they need not: a config says its "
        "head_dim",
    ),
    (
        lambda config, *_: 1 / config.num_hidden_layers,
        "that is one layer: each layer has keys and values of its own",
    ),
    (
        lambda _, tokens, batch, size: 1 / batch,
        "right for one conversation: each row of the batch has a store of its own",
    ),
    (
        lambda _, tokens, batch, size: 1 / size,
        "that counts numbers: each takes `size` bytes",
    ),
    (
        lambda _, tokens, batch, size: 4 / size,
        "right for float32 alone: `size` says bytes a number",
    ),
    (lambda *_: 8, "those are bits: `size` counts bytes a number"),
    *(
        (
            lambda *_, unit=unit: 1 / unit,
            "bytes are asked for, not thousands, millions or billions of them",
        )
        for unit in (1000, 1000**2, 1000**3, 1024, 1024**2, 1024**3)
    ),
)


def prediction(
    function, model, ids, n: int = 500, *, again: bool = False, clock=time.perf_counter
) -> Feedback:
    """Notebook 08: `predict(p, n)`, seconds of an answer of n tokens to a prompt of p.

    The answer is then written with a cache, and timed: half to twice as long is right.

    Args:
        ids: the prompt, (1, p).
        again: time it anew; else each answer is timed once.
        clock: seconds, from which differences are taken.
    """
    p = ids.shape[1]
    answer, problem = tried(function, p, n)
    if problem:
        return problem
    said = _number(answer)
    if said is None or not 0 < said < inf:
        return wrong(f"predict should return seconds, a number above zero, and gave {answer!r}")
    took, a_row, anew = _answered(model, ids, n, again, clock)
    found = f"you said {said:.3g} seconds for {n} tokens, and they took {took:.3g}"
    if took / 2 <= said <= took * 2:
        return passed(f"{found}: within a factor of two")
    found += "" if anew else " (timed before; again=True times it anew)"
    if took / 2 <= said / 1000 <= took * 2:
        return wrong(f"{found}: those are milliseconds")
    if took / 2 <= n / said <= took * 2:
        return wrong(f"{found}: those are tokens a second")
    if said < took and _alike(said, (p + n) * a_row):
        return wrong(
            f"{found}. That is the speed of a prompt, whose tokens share one reading of the "
            "weights. Decode reads all weights for one token."
        )
    if said > took and _alike(said, count.positions(p, n, cached=False) * a_row):
        return wrong(
            f"{found}. That computes every row again at every step. With a cache it is one row a "
            "step."
        )
    times = said / took if said > took else took / said
    much = "long" if said > took else "short"
    return wrong(f"{found}: {times:.1f} times too {much}. What does one step take, and how many?")


def _alike(one: float, other: float) -> bool:
    return other / 2.5 <= one <= other * 2.5


_timed = WeakKeyDictionary()  # one answer takes half a minute


def _answered(model, ids, n: int, again: bool, clock) -> tuple[float, float, bool]:
    """Seconds of an answer of n tokens, and of one row of a long prompt; and whether timed now."""
    import torch

    timed, asked = _timed.setdefault(model, {}), (*ids.flatten().tolist(), n)
    anew = again or asked not in timed
    if anew:
        prompt = ids.repeat(1, 256 // ids.shape[1] + 1)[:, :256]
        start, cache, fed = clock(), None, ids
        with torch.no_grad():
            for _ in progress.bar(range(n), desc="answering", unit=" tokens"):
                out = model(fed, cache=cache, use_cache=True)
                cache, fed = out.cache, out.logits[:, -1:].argmax(-1)
            took, start = clock() - start, clock()
            model(prompt, use_cache=False)
            timed[asked] = took, (clock() - start) / prompt.shape[1]
    return *timed[asked], anew
