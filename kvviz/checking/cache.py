"""Put a cache of one's own on trial in the forge: prompt and decode, and chunks of 3 + 1 + 2.

Each text is fed to a cache that held another one and was reset. What attention saw is compared with
one pass without a cache, and `naming` says which mistake would have left the first difference.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from kvviz.checking import naming
from kvviz.checking.loop import GATE
from kvviz.checking.verdict import Finding, Verdict, own_lines, unwritten
from kvviz.forge import Forge, KVCache, KVEntry
from kvviz.recording.recorder import record

CHUNKS = (3, 1, 2)
EARLIER = 7  # tokens of the text that each cache has held before


def check_cache(
    cache_class=KVCache, forge_class=Forge, *, model=None, ids=None, n_new=12
) -> Verdict:
    """Judge a cache, or a forge, of your own: tokens, logits, keys and values, chunks, and work.

    Args:
        cache_class: called with the number of layers; needs `get`, `update` and `reset`.
        forge_class: `Forge`, or a subclass of it.
        model: a Llama of `transformers` whose weights to use; the small random model if None.
        ids: (1, p) tokens to begin with, six by default.
        n_new: new tokens, at least 3, chosen greedily by the right forge without a cache.

    Raises:
        TypeError: not a class, or a forge_class that is no `Forge`.
        ValueError: ids of another shape, n_new below 3, or more tokens than the model has places for.
            A mistake in the classes raises nothing: the verdict tells it.
    """
    for name, kind in (("cache_class", cache_class), ("forge_class", forge_class)):
        if not isinstance(kind, type):
            raise TypeError(f"{name}: expected a class, got an instance, {kind!r}")
    if not issubclass(forge_class, Forge):
        raise TypeError(f"forge_class: expected a subclass of Forge, got {forge_class.__name__}")
    if not isinstance(n_new, int) or n_new < 3:
        raise ValueError(
            f"n_new must be at least 3, for two decode steps to compare, and got {n_new!r}"
        )
    right = Right(model, ids, n_new)
    if right.text.unique().numel() * 2 <= right.text.numel():
        other = judged(Right(model, n=n_new), cache_class, forge_class)
        if not other.passed:
            says = "found with another text: yours repeats itself, and equal tokens hide mistakes"
            return replace(other, remarks=(says,))
    return judged(right, cache_class, forge_class)


class LogitGap(NamedTuple):
    """Largest difference between two ways of computing the same logits, and the largest logit."""

    size: float
    scale: float


def logit_gap(
    cache_class=KVCache, forge_class=Forge, *, model=None, ids=None, n_new=12, dtype=torch.float32
) -> LogitGap:
    """How far the logits of prompt and decode are from one pass without a cache.

    Arguments as in `check_cache`; `dtype` is what both are computed in. In float64 a gap of
    rounding falls by eight or nine digits, and that of a bug does not move (IEEE 754: 24 and 53
    significant bits).
    """
    right = Right(model, ids, n_new, dtype)
    logits, _ = _Trial(right, cache_class, forge_class).decode(keep=())
    return LogitGap(float((logits - right.logits).abs().max()), float(right.logits.abs().max()))


class Right:
    """What the right forge gives for a text: greedy tokens, logits, and all that attention saw."""

    def __init__(self, model=None, ids=None, n=12, dtype=None):
        self.model, self.n, self.dtype = model, n, dtype
        self.forge = self.made(Forge)
        vocab, seeded = self.forge.config.vocab_size, torch.Generator().manual_seed(0)
        self.earlier = torch.randint(vocab, (1, EARLIER), generator=seeded)
        text = torch.randint(vocab, (1, 6), generator=seeded) if ids is None else ids
        if not isinstance(text, torch.Tensor) or text.ndim != 2 or text.shape[0] != 1:
            got = tuple(text.shape) if isinstance(text, torch.Tensor) else type(text).__name__
            raise ValueError(f"check_cache takes one prompt, ids of shape (1, p), and got {got}")
        self.p = text.shape[1]
        for _ in range(n):
            logits = self.forge(text)
            text = torch.cat([text, logits[:, -1:].argmax(-1)], dim=1)
        self.new, self.text = text[0, self.p :], text[:, :-1]  # the last token is not fed
        with record(self.forge, keep=naming.SEEN, max_bytes=2**32) as run:
            self.logits = self.forge(self.text)
        self.whole = run[0]

    def made(self, forge_class):
        """A new forge of this class with the same weights: it may keep a counter."""
        small = self.model is None
        forge = forge_class.small() if small else forge_class.from_pretrained(self.model)
        return forge.to(self.dtype)


def judged(right: Right, cache_class, forge_class) -> Verdict:
    """`check_cache` against what has been computed before."""
    theirs = {cache_class, forge_class} - {KVCache, Forge}
    own = [vars(kind)[name] for kind in theirs for name in _METHODS if name in vars(kind)]
    missing = [name for name in ("get", "update", "reset") if not hasattr(cache_class, name)]
    if missing:
        says = (
            f"{cache_class.__name__} has no method {missing[0]!r}: a cache needs get, update, reset"
        )
        return Verdict(False, says, "raised")
    if own and all(map(unwritten, own)):
        return _NOT_DONE
    trial = _Trial(right, cache_class, forge_class)
    try:
        return trial.verdict()
    except NotImplementedError:
        return _NOT_DONE
    except Exception as error:
        return trial.raised(error)


class _Trial:
    """The two ways of feeding the text to a cache and a forge, and what they gave."""

    def __init__(self, right, cache_class, forge_class):
        self.right, self.cache_class, self.forge_class = right, cache_class, forge_class
        self.run, self.left = (), False  # what is being recorded; what a reset left behind

    def decode(self, keep=naming.SEEN):
        """The prompt at once, and then one token at a time."""
        return self._fed([self.right.p] + [1] * (self.right.n - 1), keep)

    def _fed(self, sizes, keep=naming.SEEN):
        """Logits of every row, and the recording, of the text fed in pieces of these sizes."""
        n_layers, right = len(self.right.forge.layers), self.right
        forge, cache = right.made(self.forge_class), self.cache_class(n_layers)
        forge(right.earlier, cache)
        cache.reset()
        self.left = any(cache.get(layer) is not None for layer in range(n_layers))
        right.made(self.forge_class)(right.earlier, self.cache_class(n_layers))  # not this one's
        pieces = right.text.split(sizes, dim=1)
        with record(forge, keep=keep, max_bytes=2**32) as self.run:
            run = self.run
            return torch.cat([forge(piece, cache) for piece in pieces], dim=1), run

    def verdict(self):
        right = self.right
        one, decode = self.decode()
        many, chunks = self._fed(_chunks(right.text.shape[1]))
        gaps = {
            "logits": _gap(one, right.logits),
            "keys and values": self._columns_gap(decode),
            "chunks": _gap(many, right.logits),
        }
        findings = (
            self._tokens(one),
            self._within("logits", gaps, "every row of prompt and decode", one),
            self._within("keys and values", gaps, "every layer and place, as attention saw them"),
            self._within("chunks", gaps, "every row, fed 3 + 1 + 2", many),
            _work(decode),
        )
        if all(finding.passed for finding in findings):
            headline = "equal in tokens, logits, keys and values, in chunks too; 1 row a step"
            return Verdict(True, headline, findings=findings, gaps=gaps)
        cause = self._named(decode) or self._named(chunks) or _NAMELESS
        headline, (tokens, logits, _, in_chunks, work) = cause.headline, findings
        if tokens.passed and logits.passed and work.passed:
            harmless = "to the text" if in_chunks.passed else "in decode, wrong for chunks"
            headline = f"harmless {harmless}: {headline}"
        return Verdict(
            False,
            headline,
            cause.name,
            cause.advice,
            findings,
            gaps=gaps,
            step=cause.step,
            layer=cause.layer,
            place=cause.place,
        )

    def _named(self, run):
        right = self.right

        def turn(keys, places):
            return right.forge.rotate(keys, right.forge.rotation(places))

        cause = naming.named(run, right.whole, GATE, turn=turn, earlier=EARLIER)
        if cause and cause.name == "stale store" and not self.left:
            says = "a second cache was filled with another text, and this one held its tokens"
            return naming.Cause(says, "one store for two caches", 0)
        return cause

    def raised(self, error):
        """An error may only follow from a mistake before it: then that is what to tell."""
        lines = own_lines(error)
        says = f"it raised {type(error).__name__}: {error}"
        cause = None if lines else self._named(self.run) or self._left() or self._shares_a_slot()
        if cause is None:
            return Verdict(False, says, "raised", lines or "in a call of your classes")
        return Verdict(False, cause.headline, cause.name, f"{cause.advice}\nThen {says}")

    def _left(self):
        if self.left:
            return naming.Cause("some slots were not empty after a reset", "stale store")

    def _shares_a_slot(self):
        cache, entry = self.cache_class(2), KVEntry(*torch.zeros(2, 1, 1, 1, 1))
        cache.update(0, entry)
        if cache.get(1) is not None:
            says = "layer 0 was written, and layer 1 had an entry"
            return naming.Cause(says, "one slot for all layers")

    # -- what is compared ------------------------------------------------------------------------

    def _columns_gap(self, run):
        """Largest gap between a column that attention saw and the right one in its place."""
        gaps, end = [], 0
        for step in run:
            end += step.fed
            for layer in step.layers:
                for name in ("keys", "values"):
                    right = self.right.whole.kept[name][layer]
                    gaps.append(_gap(step.kept[name][layer], right[:, :, :end], right))
        return max(gaps)

    def _within(self, name, gaps, what, logits=None):
        if gaps[name] <= GATE:
            return Finding(name, True, f"{what}, no gap over {GATE:.0e} of the largest")
        says = f"a gap of {gaps[name]:.0e} of the largest"
        if gaps[name] == float("inf"):
            says = "not as many columns as tokens"
        right = self.right.logits
        if logits is not None and logits.shape == right.shape:
            over = (logits - right).abs().amax((0, 2)) > GATE * right.abs().max()
            says += f", first at place {int(over.nonzero()[0])}" if over.any() else ""
        return Finding(name, False, says)

    def _tokens(self, logits):
        chosen, right = logits[0, self.right.p - 1 :].argmax(-1), self.right.new
        off = (chosen != right).nonzero()[:, 0].tolist()
        if not off:
            return Finding("tokens", True, f"all {len(right)} new ones")
        says = f"is {int(chosen[off[0]])}, and should be {int(right[off[0]])}"
        return Finding("tokens", False, f"new token {off[0]} {says}")


_METHODS = ("get", "update", "positions", "rotate", "append", "mask", "attend", "forward")
_NOT_DONE = Verdict(False, "not done yet: replace the ... with your own lines", "not done yet")
_NAMELESS = naming.Cause(
    "the logits differ, and nothing that attention saw or gave does", naming.UNKNOWN
)


def _chunks(total):
    """Sizes 3, 1, 2, 3, 1, 2, ... that add up to `total`."""
    sizes = []
    while (left := total - sum(sizes)) > 0:
        sizes.append(min(left, CHUNKS[len(sizes) % len(CHUNKS)]))
    return sizes


def _gap(ours, right, scale=None):
    """Largest difference over the largest number; infinite where the shapes differ."""
    if ours.shape != right.shape:
        return float("inf")
    gap = float((ours - right).abs().max() / (right if scale is None else scale).abs().max())
    return float("inf") if gap != gap else gap


def _work(run):
    rows = [step.rows_by_layer[0] for step in run]
    if rows == run.rows:
        return Finding("work", True, f"1 row a step; {sum(rows)} rows in all")
    return Finding("work", False, f"{sum(rows)} rows computed for {sum(run.rows)} fed")
