"""Check a cache of your own in the forge: prompt and decode, and chunks of 3 + 1 + 2.

Each text is fed to a cache that held an earlier one and was reset. What attention saw is compared
with one pass without a cache, and the mistake is named by the first difference.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import NamedTuple

import torch

from kvviz.arguments import check_whole
from kvviz.checking.cache_rules import find_cause
from kvviz.checking.causes import UNKNOWN, Cause
from kvviz.checking.compare import (
    SEEN,
    Reference,
    compare_entries,
    compare_logits,
    compare_tokens,
    compare_work,
)
from kvviz.checking.learner_code import attempt, is_unwritten, own_lines
from kvviz.checking.loop import LEAST_NEW, MAX_BYTES, check_prompt
from kvviz.checking.verdict import Verdict
from kvviz.forge import Forge, KVCache, KVEntry
from kvviz.recording.recorder import record
from kvviz.recording.run import Run

CHUNKS = (3, 1, 2)
N_EARLIER = 7  # tokens of the text that each cache held before
NEEDED = ("get", "update", "reset")
METHODS = ("get", "update", "positions", "rotate", "append", "mask", "attend", "forward")


def check_cache(
    cache_class=KVCache, forge_class=Forge, *, model=None, ids=None, n_new=12
) -> Verdict:
    """Check a cache, or a forge, of your own: tokens, logits, keys and values, chunks, and work.

    Args:
        cache_class: called with the number of layers; needs `get`, `update` and `reset`.
        forge_class: `Forge`, or a subclass of it.
        model: a Llama of `transformers` whose weights to use; None for the small random model.
        ids: (1, p) tokens to begin with; None for six tokens of its own.
        n_new: new tokens, at least 3, chosen greedily by the right forge without a cache.

    Raises:
        TypeError: not a class, or a forge_class that is no `Forge`.
        ValueError: ids of another shape, n_new below 3, or more tokens than the model has
            positions for. A mistake in your classes raises nothing: the verdict says what is wrong.

    >>> kv.check_cache(kv.KVCache).headline
    'equal in tokens, logits, keys and values, in chunks too; 1 row a step'
    """
    _check_classes(cache_class, forge_class)
    n_new = check_whole("n_new", n_new, least=LEAST_NEW)
    right = RightForge(model, ids, n_new)
    if right.text.unique().numel() * 2 <= right.text.numel():
        other = judge_cache(RightForge(model, n_new=n_new), cache_class, forge_class)
        if not other.passed:
            says = "found with another text: yours repeats itself, and equal tokens hide mistakes"
            return replace(other, remarks=(says,))
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

    >>> kv.logit_gap().size < 1e-4, kv.logit_gap(dtype=torch.float64).size < 1e-12
    (True, True)
    """
    _check_classes(cache_class, forge_class)
    n_new = check_whole("n_new", n_new, least=LEAST_NEW)
    right = RightForge(model, ids, n_new, dtype)
    trial = _Trial(right, cache_class, forge_class)
    logits, expected = trial.feed(right.one_by_one, keep=()).logits(), right.reference.logits
    return LogitGap(float((logits - expected).abs().max()), float(expected.abs().max()))


def _check_classes(cache_class, forge_class):
    for name, kind in (("cache_class", cache_class), ("forge_class", forge_class)):
        if not isinstance(kind, type):
            raise TypeError(f"{name}: expected a class, got an instance, {kind!r}")
    if not issubclass(forge_class, Forge):
        raise TypeError(f"forge_class: expected a subclass of Forge, got {forge_class.__name__}")


class RightForge:
    """What the right forge gives for a text; it also builds forges of other classes to compare."""

    def __init__(self, model=None, ids=None, n_new=12, dtype=None):
        self.model, self.dtype = model, dtype
        self.forge = self.build(Forge)
        vocab, seeded = self.forge.config.vocab_size, torch.Generator().manual_seed(0)
        self.earlier = torch.randint(vocab, (1, N_EARLIER), generator=seeded)
        ids = torch.randint(vocab, (1, 6), generator=seeded) if ids is None else ids
        check_prompt(ids)
        p = ids.shape[1]
        for _ in range(n_new):
            ids = torch.cat([ids, self.forge(ids)[:, -1:].argmax(-1)], dim=1)
        self.text = ids[:, :-1]  # the last token is not fed
        with record(self.forge, keep=SEEN, max_bytes=MAX_BYTES) as run:
            logits = self.forge(self.text)
        self.reference = Reference(ids, p, logits, run[0])
        self.one_by_one = [p] + [1] * (n_new - 1)

    def build(self, forge_class) -> Forge:
        """A new forge of this class with the same weights: it may keep a counter."""
        is_small = self.model is None
        forge = forge_class.small() if is_small else forge_class.from_pretrained(self.model)
        return forge.to(self.dtype)

    def rotate(self, keys, positions):
        return self.forge.rotate(keys, self.forge.rotation(positions))

    @property
    def in_chunks(self) -> list[int]:
        """Sizes 3, 1, 2, 3, 1, 2, ... that add up to the text."""
        sizes = []
        while (left := self.text.shape[1] - sum(sizes)) > 0:
            sizes.append(min(left, CHUNKS[len(sizes) % len(CHUNKS)]))
        return sizes


def judge_cache(right: RightForge, cache_class, forge_class) -> Verdict:
    """`check_cache` against what has been computed before."""
    if missing := [name for name in NEEDED if not hasattr(cache_class, name)]:
        says = f"{cache_class.__name__} has no method {missing[0]!r}"
        needs = f"a cache needs {', '.join(NEEDED)}"
        return Verdict.from_cause(Cause("raised", says, lines=needs))
    theirs = {cache_class, forge_class} - {KVCache, Forge}
    own = [vars(kind)[name] for kind in theirs for name in METHODS if name in vars(kind)]
    not_done = Cause("not done yet", "not done yet: replace the ... with your own lines")
    if own and all(map(is_unwritten, own)):
        return Verdict.from_cause(not_done)
    trial = _Trial(right, cache_class, forge_class)
    called = attempt(trial.judge)
    if isinstance(called.error, NotImplementedError):
        return Verdict.from_cause(not_done)
    return trial.explain(called.error) if called.error else called.result


@dataclass
class _Feeding:
    """A text fed to a cache in pieces: the recording, and what each piece gave."""

    has_leftovers: bool  # whether a slot was not empty after the reset
    run: Run | tuple = ()
    outputs: list[torch.Tensor] = field(default_factory=list)

    def logits(self) -> torch.Tensor:
        return torch.cat(self.outputs, dim=1)

    def rows(self):
        """(step, positions, logits) of every piece."""
        start = 0
        for index, logits in enumerate(self.outputs):
            end = start + self.run[index].fed
            yield index, torch.arange(start, end), logits
            start = end


class _Trial:
    """A cache class and a forge class, each text fed to new instances of both."""

    def __init__(self, right: RightForge, cache_class, forge_class):
        self.right, self.cache_class, self.forge_class = right, cache_class, forge_class
        self.feedings: list[_Feeding] = []

    def feed(self, sizes, keep=SEEN) -> _Feeding:
        """Feed the text in pieces of these sizes, after another text and a reset."""
        n_layers, right = len(self.right.forge.layers), self.right
        forge, cache = right.build(self.forge_class), self.cache_class(n_layers)
        forge(right.earlier, cache)
        cache.reset()
        left = any(cache.get(layer) is not None for layer in range(n_layers))
        feeding = _Feeding(has_leftovers=left)
        self.feedings.append(feeding)
        right.build(self.forge_class)(right.earlier, self.cache_class(n_layers))  # a second cache
        with record(forge, keep=keep, max_bytes=MAX_BYTES) as feeding.run:
            for piece in right.text.split(sizes, dim=1):
                feeding.outputs.append(forge(piece, cache))
        return feeding

    def judge(self) -> Verdict:
        """Feed the text both ways and compare everything; a mistake in the classes may raise."""
        reference = self.right.reference
        decode, chunks = self.feed(self.right.one_by_one), self.feed(self.right.in_chunks)
        logits = compare_logits(decode.rows(), reference)
        entries = compare_entries(decode.run, reference)
        in_chunks = compare_logits(chunks.rows(), reference)
        new = decode.logits()[0, reference.n_prompt - 1 :].argmax(-1)
        findings = (
            compare_tokens(new.tolist(), reference.ids[0, reference.n_prompt :].tolist()),
            logits.finding("logits", "every row of prompt and decode"),
            entries.finding("keys and values", "every layer and position, as attention saw them"),
            in_chunks.finding("chunks", "every row, fed 3 + 1 + 2"),
            compare_work([step.rows_by_layer[0] for step in decode.run], sum(decode.run.rows)),
        )
        gaps = {"logits": logits.gap, "keys and values": entries.gap, "chunks": in_chunks.gap}
        if all(finding.passed for finding in findings):
            headline = "equal in tokens, logits, keys and values, in chunks too; 1 row a step"
            return Verdict(True, headline, findings=findings, gaps=gaps)
        says = "the logits differ, but nothing that attention saw or gave does"
        cause = self.find_cause() or Cause(UNKNOWN, says)
        headline, (tokens, logits, _, in_chunks, work) = cause.says, findings
        if tokens.passed and logits.passed and work.passed:
            harmless = "to the text" if in_chunks.passed else "in decode, wrong for chunks"
            headline = f"harmless {harmless}: {headline}"
        return Verdict.from_cause(cause, headline=headline, findings=findings, gaps=gaps)

    def find_cause(self) -> Cause | None:
        """The first difference in what attention saw, in any way of feeding."""
        right = self.right
        for feeding in self.feedings:
            cause = find_cause(
                feeding.run, right.reference, rotate=right.rotate, n_earlier=N_EARLIER
            )
            if cause and cause.name == "stale cache" and not feeding.has_leftovers:
                says = "a second cache was filled with another text, and this one held its tokens"
                return Cause("state shared between caches", says, 0)
            if cause:
                return cause
        return None

    def explain(self, error) -> Verdict:
        """An error may only follow from a mistake before it: then that is the cause."""
        lines, says = own_lines(error), f"it raised {type(error).__name__}: {error}"
        cause = None if lines else attempt(self.earlier_mistake).result
        if cause is None:
            return Verdict.from_cause(Cause("raised", says, lines=lines))
        return Verdict.from_cause(cause, advice=f"{cause.advice}\nThen {says}")

    def earlier_mistake(self) -> Cause | None:
        """What was wrong before an error; looking for it may raise once more."""
        return self.find_cause() or self.leftovers() or self.shared_slot()

    def leftovers(self) -> Cause | None:
        if any(feeding.has_leftovers for feeding in self.feedings):
            return Cause("stale cache", "some slots were not empty after a reset")

    def shared_slot(self) -> Cause | None:
        cache, entry = self.cache_class(2), KVEntry(*torch.zeros(2, 1, 1, 1, 1))
        cache.update(0, entry)
        if cache.get(1) is not None:
            says = "layer 0 was written, and layer 1 had an entry"
            return Cause("one slot for all layers", says)
