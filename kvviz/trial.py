"""Put a cache of one's own on trial in the forge: prompt and decode, and chunks of 3 + 1 + 2.

Each text is fed to a cache that held another one and was reset. What attention saw is compared with
one pass without a cache, and `naming` says which mistake would have left the first difference.
"""

from __future__ import annotations

import torch

from . import naming
from .checking import GATE
from .forge import Forge, KVCache
from .recording import record
from .verdict import Finding, Verdict, own_frames

CHUNKS = (3, 1, 2)
EARLIER = 7  # tokens of the text that each cache has held before


def check_cache(cache_class=KVCache, forge_class=Forge, *, model=None, ids=None, n=12) -> Verdict:
    """Judge a cache, or a forge, of your own: tokens, logits, keys and values, chunks, and work.

    Args:
        cache_class: called with the number of layers; needs `get`, `update` and `reset`.
        forge_class: `Forge`, or a subclass of it.
        model: a Llama of `transformers` whose weights to use; the small random model if None.
        ids: (1, p) tokens to begin with, six by default.
        n: new tokens, at least 3, chosen greedily by the right forge without a cache.

    Raises:
        TypeError: not a class, or a forge_class that is no `Forge`.
        ValueError: ids of another shape, n below 3, or more tokens than the model has places for.
            A mistake in the classes raises nothing: the verdict tells it.
    """
    for name, kind in (("cache_class", cache_class), ("forge_class", forge_class)):
        if not isinstance(kind, type):
            raise TypeError(f"{name}: expected a class, got an instance, {kind!r}")
    if not issubclass(forge_class, Forge):
        raise TypeError(f"forge_class: expected a subclass of Forge, got {forge_class.__name__}")
    if not isinstance(n, int) or n < 3:
        raise ValueError(f"n must be at least 3, for two decode steps to compare, and got {n!r}")
    trial = _Trial(cache_class, forge_class, model, ids, n)
    try:
        return trial.verdict()
    except NotImplementedError:
        return Verdict(False, "not done yet: replace the ... with your own lines", "not done yet")
    except Exception as error:
        if not (frames := own_frames(error)):
            raise
        lines = [f"line {f.lineno} of {f.name}:  {f.line}" for f in frames]
        headline = f"it raised {type(error).__name__}: {error}"
        return Verdict(False, headline, "raised", "\n".join(lines))


class _Trial:
    """What the right forge gives for a text, and the two ways of feeding it to the other one."""

    def __init__(self, cache_class, forge_class, model, ids, n):
        self.cache_class = cache_class
        make = (lambda kind: kind.small()) if model is None else lambda kind: kind.from_pretrained(model)  # noqa: E501 # fmt: skip
        self.forge = lambda: make(forge_class)  # a new one each time: it may keep a counter
        self.right = make(Forge)
        vocab, seeded = self.right.config.vocab_size, torch.Generator().manual_seed(0)
        self.earlier = torch.randint(vocab, (1, EARLIER), generator=seeded)
        text = torch.randint(vocab, (1, 6), generator=seeded) if ids is None else ids
        if not isinstance(text, torch.Tensor) or text.ndim != 2 or text.shape[0] != 1:
            got = tuple(text.shape) if isinstance(text, torch.Tensor) else type(text).__name__
            raise ValueError(f"check_cache takes one prompt, ids of shape (1, p), and got {got}")
        self.prompt = text.shape[1]
        for _ in range(n):
            logits = self.right(text)
            text = torch.cat([text, logits[:, -1:].argmax(-1)], dim=1)
        self.text = text
        with record(self.right, keep=naming.SEEN, max_bytes=2**32) as run:
            self.logits = self.right(text[:, :-1])
        self.whole = run[0]

    def fed(self, sizes):
        """Logits of every row, and the recording, of the text fed in pieces of these sizes."""
        forge, cache = self.forge(), self.cache_class(len(self.right.layers))
        forge(self.earlier, cache)
        cache.reset()
        pieces = self.text[:, : sum(sizes)].split(sizes, dim=1)
        with record(forge, keep=naming.SEEN, max_bytes=2**32) as run:
            return torch.cat([forge(piece, cache) for piece in pieces], dim=1), run

    def verdict(self):
        rows = self.text.shape[1] - 1
        decode = [self.prompt] + [1] * (rows - self.prompt)
        chunks = (list(CHUNKS) * rows)[: next(i for i in range(rows + 1) if sum((list(CHUNKS) * rows)[:i]) >= rows)]  # noqa: E501 # fmt: skip
        chunks[-1] -= sum(chunks) - rows
        one, run = self.fed(decode)
        many, chunk_run = self.fed(chunks)
        gaps = {"logits": self._gap(one), "keys and values": self._seen_gap(run)}
        gaps["chunks"] = self._gap(many)
        tokens, work = self._tokens(one), self._work(run)
        findings = (
            tokens,
            self._finding("logits", gaps, "every row of prompt and decode", one),
            self._finding("keys and values", gaps, "every layer and place, as attention saw them"),
            self._finding("chunks", gaps, "every row, fed 3 + 1 + 2", many),
            work,
        )
        if all(finding.passed for finding in findings):
            says = "equal in tokens, logits, keys and values, in chunks too; 1 row a step"
            return Verdict(True, says, findings=findings, gaps=gaps)
        cause = self._named(run) or self._named(chunk_run)
        if cause is None:
            cause = naming.Cause("the logits differ, and nothing that attention saw or gave does",
                                 "not recognised", "Look at what comes after attention.",
                                 None, None)  # fmt: skip
        headline = cause.headline
        if tokens.passed and findings[1].passed and work.passed:
            harmless = "in decode, wrong for chunks" if not findings[3].passed else "to the text"
            headline = f"harmless {harmless}: {headline}"
        return Verdict(False, headline, cause.name, cause.advice, findings, gaps=gaps,
                       step=cause.step, layer=cause.layer, place=cause.place)  # fmt: skip

    def _named(self, run):
        """Looked for above rounding first: what is small may only follow from what is large."""
        for gate in (10 * GATE, GATE):
            found = naming.first(
                run, self.whole, gate, turn=self.right.rotate, earlier=self.earlier.shape[1]
            )
            if found:
                return found

    # -- what is compared ------------------------------------------------------------------------

    def _gap(self, logits):
        right = self.logits[:, : logits.shape[1]]
        return float((logits - right).abs().max() / right.abs().max())

    def _seen_gap(self, run):
        """Largest gap between a column that attention saw and the right one in its place."""
        gaps = [0.0]
        for step in run:
            for layer in step.layers:
                for name in ("keys", "values"):
                    ours = step.kept[name][layer]
                    right = self.whole.kept[name][layer]
                    if step.index:
                        end = run[step.index].fed + sum(run.rows[: step.index])
                    else:
                        end = step.fed
                    right = right[:, :, :end]
                    if ours.shape != right.shape:
                        return float("inf")
                    gaps.append(float((ours - right).abs().max() / right.abs().max()))
        return max(gaps)

    def _finding(self, name, gaps, what, logits=None):
        gap = gaps[name]
        if gap <= GATE:
            return Finding(name, True, f"{what}, no gap over {GATE:.0e} of the largest")
        where = ""
        if logits is not None:
            over = (logits - self.logits).abs().amax((0, 2)) > GATE * self.logits.abs().max()
            where = f", first in row {int(over.nonzero()[0])}" if over.any() else ""
        size = "columns missing or too many" if gap == float("inf") else f"a gap of {gap:.0e} of the largest"  # noqa: E501 # fmt: skip
        return Finding(name, False, f"{size}{where}")

    def _tokens(self, logits):
        new = logits[0, self.prompt - 1 :].argmax(-1)
        right = self.text[0, self.prompt :]
        same = int((new == right).long().cumprod(0).sum())
        if same == len(right):
            return Finding("tokens", True, f"all {len(right)} new ones")
        return Finding("tokens", False, f"new token {same} is {int(new[same])}, and should be {int(right[same])}")  # noqa: E501 # fmt: skip

    def _work(self, run):
        rows = [step.rows_by_layer[0] for step in run]
        if rows == run.rows:
            return Finding("work", True, f"1 row a step; {sum(rows)} rows in all")
        return Finding("work", False, f"{sum(rows)} rows computed for {sum(run.rows)} fed")
