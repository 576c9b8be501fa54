"""Check a cache of your own in the forge: prompt and decode, and chunks of 3 + 1 + 2.

Each text is fed to a cache that held an earlier one and was reset. What attention saw is compared
with one pass without a cache, and the mistake is named by the first difference. What is right so
far is tried further: with more tokens, with two caches in turn, and with a batch of two.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from kvviz.arguments import check_whole, describe
from kvviz.checking.cache_picture import find_cache_mistake, find_cache_strip
from kvviz.checking.causes import Cause
from kvviz.checking.further import try_further
from kvviz.checking.learner_code import own_lines
from kvviz.checking.loop import LEAST_NEW
from kvviz.checking.right_forge import RightForge, find_right
from kvviz.checking.stubs import is_stub, is_stub_error
from kvviz.checking.time_limit import StillRunning, attempt_within
from kvviz.checking.trial import Trial
from kvviz.checking.verdict import Verdict
from kvviz.checking.verdict_picture import describe_savings, make_drawer
from kvviz.forge import Forge, KVCache

NEEDED = ("get", "update", "reset")
METHODS = ("get", "update", "positions", "rotate", "append", "mask", "attend", "forward")
OPEN = ("positions", "forward")  # what can't be right, or a known mistake, while it's only `...`
NOT_DONE = Cause("not done yet", "not done yet: replace the ... with your own lines")
SECONDS, SECONDS_OF_A_MODEL = 20, 120  # after which a check ends, whatever your classes do


def check_cache(
    cache_class=KVCache, forge_class=Forge, *, model=None, ids=None, n_new=12
) -> Verdict:
    """Check a cache, or a forge, of your own: tokens, logits, keys and values, chunks, and work.

    Args:
        cache_class: called with the number of layers; needs `get`, `update` and `reset`. A `fork`
            and a `crop` are tried where it has them: crop(-n) takes the last n tokens out.
        forge_class: `Forge`, or a subclass of it.
        model: a Llama of `transformers` whose weights to use; None for the small random model.
        ids: (1, p) tokens to begin with; None for six tokens of its own.
        n_new: new tokens, at least 3, chosen greedily by the right forge without a cache.

    Raises:
        TypeError: not a class, or a forge_class that is no `Forge`.
        ValueError: ids of another shape, n_new below 3, or more tokens than the model has
            positions for. A mistake in your classes raises nothing: the verdict says what is wrong.

    What is right so far is tried further: with up to 90 tokens held (40 with a model of your own),
    with two caches in turn, and with a batch of two. The verdict's note says how far it went.

    It ends within 20 seconds, or 120 with a model of your own, even if your code doesn't. What is
    judged is judged in float32 (in float64 if the model is).

    >>> kv.check_cache(kv.KVCache).headline
    'equal in tokens, logits, keys and values, in chunks too; 1 row a step'
    """
    _check_classes(cache_class, forge_class)
    n_new = check_whole("n_new", n_new, least=LEAST_NEW)
    right = find_right(model, ids, n_new)
    if right.text.unique().numel() * 2 <= right.text.numel():
        other = judge_cache(find_right(model, None, n_new), cache_class, forge_class)
        if not other.passed:
            says = "found with another text: yours repeats itself, and equal tokens hide mistakes"
            return replace(other, remarks=(says, *other.remarks))
    return judge_cache(right, cache_class, forge_class)


class LogitGap(NamedTuple):
    """Largest difference between two ways of computing the same logits, and the largest logit."""

    size: float
    scale: float


def logit_gap(
    cache_class=KVCache, forge_class=Forge, *, model=None, ids=None, n_new=12, dtype=torch.float32
) -> LogitGap:
    """How far the logits of prompt and decode are from those of one pass without a cache.

    Arguments and errors as in `check_cache`; `dtype` is what both are computed in. In float64 a gap
    from rounding falls by eight or nine digits, and that of a bug doesn't move (IEEE 754: 24 and 53
    significant bits).

    Raises:
        TypeError, ValueError: as `check_cache`; `dtype` isn't one of torch's for floats.

    >>> kv.logit_gap().size < 1e-4, kv.logit_gap(dtype=torch.float64).size < 1e-12
    (True, True)
    """
    _check_classes(cache_class, forge_class)
    n_new = check_whole("n_new", n_new, least=LEAST_NEW)
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        came = dtype if isinstance(dtype, torch.dtype) else describe(dtype)
        raise TypeError(f"dtype: expected one for floats, such as torch.float64, got {came}")
    right = RightForge(model, ids, n_new, dtype)
    trial = Trial(right, cache_class, forge_class)
    logits, expected = trial.feed_after_reset(right.one_by_one).logits(), right.reference.logits
    return LogitGap(float((logits - expected).abs().max()), float(expected.abs().max()))


def _check_classes(cache_class, forge_class):
    for name, kind in (("cache_class", cache_class), ("forge_class", forge_class)):
        if not isinstance(kind, type):
            raise TypeError(f"{name}: expected a class, got an instance: {describe(kind)}")
    if not issubclass(forge_class, Forge):
        raise TypeError(f"forge_class: expected a subclass of Forge, got {forge_class.__name__}")


def judge_cache(right: RightForge, cache_class, forge_class) -> Verdict:
    """`check_cache` against what has been computed before."""
    seconds = SECONDS if right.model is None else SECONDS_OF_A_MODEL
    trial = Trial(right, cache_class, forge_class)
    called = attempt_within(seconds, lambda: _judge(trial))
    if (error := called.error) is None:
        return called.result if called.result.passed else _with_picture(called.result, trial)
    if isinstance(error, StillRunning):
        return Verdict.from_cause(Cause("does not end", trial.tell(error)))
    if is_stub_error(error):
        return Verdict.from_cause(NOT_DONE)
    explained = attempt_within(seconds / 4, lambda: trial.explain(error)).result
    raised = Cause("raised", trial.tell(error), lines=own_lines(error))
    return _with_picture(explained or Verdict.from_cause(raised), trial)


def _with_picture(verdict: Verdict, trial: Trial) -> Verdict:
    """A failing verdict with the step that went wrong."""
    return replace(verdict, draw=make_drawer(find_cache_mistake, trial))


def _judge(trial: Trial) -> Verdict:
    kinds = {trial.given_class, trial.forge_class} - {KVCache, Forge}
    own = [vars(kind)[name] for kind in kinds for name in METHODS if name in vars(kind)]
    cache = trial.new_cache()
    if missing := [name for name in NEEDED if not hasattr(cache, name)]:
        says = f"{trial.given_class.__name__} has no method {missing[0]!r}"
        needs = f"a cache needs {', '.join(NEEDED)}"
        return Verdict.from_cause(Cause("raised", says, lines=needs))
    if own and all(map(is_stub, own)):
        return Verdict.from_cause(NOT_DONE)
    if missing := [name for name in OPEN if is_stub(vars(trial.forge_class).get(name))]:
        says = f"not done yet: replace the ... in `{missing[0]}`"
        return Verdict.from_cause(Cause("not done yet", says))
    verdict = trial.judge()
    if not verdict.passed:
        return verdict
    decode = trial.decode
    verdict = replace(
        verdict,
        savings=describe_savings(decode.rows, trial.right.reference.n_prompt, len(decode.rows)),
        draw=make_drawer(find_cache_strip, trial, decode),
    )
    return try_further(trial, verdict)
