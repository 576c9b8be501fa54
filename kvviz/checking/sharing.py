"""Try the `fork` of a cache that has one: two caches begin with the same tokens, and go on apart.

Each must hold, and give, what it would alone: while they take turns, after one of them was emptied,
and while that one takes up another text.
"""

from __future__ import annotations

import torch

from kvviz.checking.causes import UNKNOWN, Cause
from kvviz.checking.columns import match_columns
from kvviz.checking.contract import copy_entry
from kvviz.checking.right_forge import Text
from kvviz.checking.stubs import has_written
from kvviz.checking.time_limit import attempt_inside
from kvviz.forge import KVEntry

ALIKE = (5, 6)  # tokens that both begin with: in pages of up to six, one of them ends amid a page
ROUNDS = 200  # of forking and emptying: pages that aren't given back run out
UNCOPIED, FREED, LEAK = (
    "shared page written without a copy",
    "freed page still read",
    "pages not given back",
)


def forked(trial) -> Cause | None:
    """What went wrong between two caches that share their beginning; None if they can't."""
    if not has_written(trial.given_class, "fork"):
        return None
    trial.trace = None  # several caches at once: nothing of them is recorded
    for n_alike in ALIKE:
        if cause := _go_apart(trial, n_alike):
            return cause
    return _run_out(trial)


def _go_apart(trial, n_alike: int) -> Cause | None:
    """Two caches take turns; then one is emptied and takes up another text beside a third."""
    right, forge = trial.right, trial.right.build(trial.forge_class)
    first, other = right.other, right.as_long
    start, rest = first.text[:, :n_alike], first.text[:, n_alike : n_alike + 2]
    parted = torch.cat([start, (rest + 1) % right.forge.config.vocab_size], dim=1)
    second = Text(parted, right.refer)
    one = trial.new_cache()
    trial.doing = "with a fork of a cache"
    forge(start.clone(), one)
    fork = one.fork()
    for end in range(n_alike, second.fed):  # both write at the same position
        forge(first.text[:, end : end + 1].clone(), one)
        forge(second.text[:, end : end + 1].clone(), fork)
        for cache, text, beside, who in (
            (one, first, second, "the cache that was forked"),
            (fork, second, first, "the fork"),
        ):
            if says := _differs(cache, text, end + 1):
                return _blame(UNCOPIED, cache, (text, beside), f"{who} holds", says)
    trial.doing = "once a fork was emptied, and fed another text"
    fork.reset()
    forge(other.text.clone(), fork)
    if says := _differs(one, first, second.fed):
        return _blame(FREED, one, (first, other), "a fork was emptied, and the cache holds", says)
    forge(first.text[:, :1].clone(), one.fork())  # it needs room, and may be given any free page
    if says := _differs(fork, other, other.fed):
        return _blame(FREED, fork, (other, first), "a fork was emptied, and then holds", says)
    return None


def _differs(cache, text, held: int) -> str | None:
    """What is wrong with the first layer that doesn't hold the first tokens of its text."""
    whole, gate = text.whole, text.reference.gate
    for layer in whole.layers:
        entry = copy_entry(cache.get(layer))
        n = 0 if entry is None else entry.keys.shape[2]
        if n != held:
            return f"layer {layer} held {n} tokens, expected {held}"
        for name, ours in zip(("keys", "values"), entry, strict=True):
            right = whole.kept[name][layer][:, :, :held]
            wrong = (ours - right).abs().amax((0, 1, 3)) > 10 * gate * right.abs().max()
            if wrong.any():
                position = int(wrong.nonzero()[0])
                return f"layer {layer}: the {name} of position {position} aren't its own"
    return None


def _blame(name, cache, texts, who: str, says: str) -> Cause:
    """That mistake, if a column is one of the other text's, and none of its own; else unknown."""
    layer = texts[0].whole.layers[0]
    if (entry := copy_entry(cache.get(layer))) is not None:
        rights = [text.whole.keys[layer][0][:, : text.fed] for text in texts]
        own, others = (match_columns(entry.keys[0], right).any(dim=1) for right in rights)
        if (others & ~own).any():
            position = int((others & ~own).nonzero()[0])
            found = f"{who} what another cache wrote at position {position}"
            return Cause(name, found, position=position)
    return Cause(UNKNOWN, f"two caches that begin alike: {says}")


def _run_out(trial) -> Cause | None:
    """Fork and empty, time and again."""
    config = trial.right.forge.config
    shape = config.n_layers, 2, 1, config.n_kv_heads, 3, config.head_dim
    numbers = torch.zeros(shape)
    cache = trial.new_cache()

    def write(which, tokens):
        for layer in range(config.n_layers):
            which.update(layer, KVEntry(*numbers[layer, :, :, :, :tokens].clone()))

    says = "forks, each emptied before the next"
    return run_out(trial, cache, lambda: _fork_and_empty(cache, write), says)


def run_out(trial, cache, use, says: str) -> Cause | None:
    """Whether what is used time and again runs out: whoever doesn't give pages back has none left.

    Where the pool can be seen, and has as many free pages as before, no page was lost.
    """
    free = None
    for round_ in range(ROUNDS):
        trial.doing = ""
        called = attempt_inside(use)
        if called.error is not None and round_:
            return Cause(LEAK, f"after {round_} {says}, {trial.tell(called.error)}")
        if called.error is not None:
            raise called.error
        before, free = free, attempt_inside(lambda: len(cache.pool.free)).result
        if round_ and free is not None and free == before:
            return None
    return None


def _fork_and_empty(cache, write) -> None:
    """Two caches share a page, one writes to it, and both give back what they have."""
    write(cache, 2)
    fork = cache.fork()
    write(fork, 3)
    fork.reset()
    cache.reset()
