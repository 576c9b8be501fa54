"""Notebooks 07 and 08: the price of a cache in bytes, and of an answer in seconds."""

from __future__ import annotations

import time
from math import isclose
from numbers import Real
from weakref import WeakKeyDictionary

from .. import count, progress
from .feedback import Feedback, passed, tried, wrong

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
    from ..models import load_config

    configs = {
        name: load_config({"model_type": "llama", "hidden_size": hidden, **_named(sizes)})
        for name, (*sizes, hidden) in _PRICED.items()
    }
    cases = [(name, *asked) for name in configs for asked in _ASKED]
    answers, right = [], []
    for name, tokens, batch, size in cases:
        answer, problem = tried(function, configs[name], tokens, batch, size)
        if problem:
            return problem
        if not isinstance(answer, Real) or isinstance(answer, bool):
            return wrong(f"price should return a number of bytes, and gave {answer!r}")
        answers.append(answer)
        held = count.cache_bytes(configs[name], tokens, batch=batch, bytes_per_number=size)
        right.append(held)
    if _equal(answers, right):
        first = f"{right[0]:,.0f} bytes a token here in float32"
        return passed(f"{first}, and right for three other models, at four lengths each")
    for off, hint in _MISTAKES.items():
        asked = ((configs[name], *rest) for name, *rest in cases)
        if _equal(answers, [held * off(*one) for held, one in zip(right, asked, strict=True)]):
            return wrong(hint)
    pairs = zip(cases, answers, right, strict=True)
    (name, tokens, batch, size), got, held = next(
        (case, got, held) for case, got, held in pairs if not isclose(got, held)
    )
    return wrong(
        f"{name}, {tokens} token{'s' * (tokens > 1)}, batch {batch}, {size} bytes a number: yours "
        f"is {got / held:.3g} times what its tensors hold. Which factor is missing, or too many?"
    )


def _named(sizes) -> dict:
    return dict(zip(_SIZES, sizes, strict=True))


def _equal(some, others) -> bool:
    return all(isclose(one, other) for one, other in zip(some, others, strict=True))


def _narrow(config, *_) -> float:
    """What a head of hidden_size / num_attention_heads has of the head width there is."""
    return config.hidden_size / config.num_attention_heads / config.head_dim


# What a typical wrong answer is off by, and its hint.
_MISTAKES = {
    lambda config, *_: config.num_attention_heads / config.num_key_value_heads: (
        "three times high for this model: query heads share their keys and values, so count the "
        "key/value heads"
    ),
    lambda *_: 0.5: "half of what is held: there are keys and there are values",
    _narrow: (
        "right where the heads' widths add up to hidden_size, and they need not: a config says its "
        "head_dim"
    ),
    lambda config, *_: 1 / config.num_hidden_layers: (
        "that is one layer: each layer has keys and values of its own"
    ),
    lambda _, tokens, batch, size: 1 / batch: (
        "right for one conversation: each row of the batch has a store of its own"
    ),
    lambda *_: 8: "those are bits: `size` counts bytes a number",
}


def prediction(function, model, ids, n: int = 500, *, clock=time.perf_counter) -> Feedback:
    """Notebook 08: `predict(p, n)`, seconds of an answer of n tokens to a prompt of p.

    The answer is then written with a cache, and timed: half to twice as long is right.

    Args:
        ids: the prompt, (1, p).
        clock: seconds, from which differences are taken.
    """
    said, problem = tried(function, ids.shape[1], n)
    if problem:
        return problem
    if not isinstance(said, Real) or isinstance(said, bool) or not said > 0:
        return wrong(f"predict should return seconds, a number above zero, and gave {said!r}")
    took = _answered(model, ids, n, clock)
    found = f"you said {said:.3g} seconds for {n} tokens, and they took {took:.3g}"
    if took / 2 <= said <= took * 2:
        return passed(f"{found}: within a factor of two")
    if took / 2 <= said / 1000 <= took * 2:
        return wrong(f"{found}: those are milliseconds")
    if said < took:
        return wrong(
            f"{found}. Decode reads all weights for one token: {n} tokens take about {n} steps, "
            "however fast a prompt goes through."
        )
    return wrong(
        f"{found}. With a cache one row is computed a step: a step does not get dearer with "
        "every row before it."
    )


_timed = WeakKeyDictionary()  # one answer takes half a minute: each is timed once


def _answered(model, ids, n: int, clock) -> float:
    """Seconds that the model takes to answer with n tokens."""
    import torch

    timed, asked = _timed.setdefault(model, {}), (*ids.flatten().tolist(), n)
    if asked not in timed:
        start, cache, fed = clock(), None, ids
        with torch.no_grad():
            for _ in progress.bar(range(n), desc="answering", unit=" tokens"):
                out = model(fed, cache=cache, use_cache=True)
                cache, fed = out.cache, out.logits[:, -1:].argmax(-1)
        timed[asked] = clock() - start
    return timed[asked]
