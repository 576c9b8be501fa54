"""What the right forge gives for a text: the reference for every cache and forge of a learner."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import torch

from kvviz.checking.compare import SEEN, Reference
from kvviz.checking.loop import MAX_BYTES, check_prompt
from kvviz.forge import Forge
from kvviz.recording.recorder import record
from kvviz.recording.step import Step

CHUNKS = (3, 1, 2)
N_EARLIER, N_OTHER = 7, 8  # tokens of the text held before, and of the one in a second cache
FURTHER = {"small": 90, "model": 40}  # tokens held in the end, where the model has positions
HALF = FURTHER["small"] // 2
IN_TURN = 6  # tokens of each of two texts


@dataclass(frozen=True)
class Text:
    """Token ids (B, t), and what gives one pass over them without a cache, once it's needed."""

    text: torch.Tensor
    refer: Callable[[torch.Tensor], Reference]

    @cached_property
    def reference(self) -> Reference:
        return self.refer(self.text)

    @property
    def fed(self) -> int:
        return self.text.shape[1]

    @property
    def whole(self) -> Step:
        return self.reference.whole


class RightForge:
    """What the right forge gives for a text; it also builds forges of other classes to compare."""

    def __init__(self, model=None, ids=None, n_new=12, dtype=None):
        self.model, self.dtype, self.forge = model, dtype, None
        self.forge = self.build(Forge)
        vocab, seeded = self.forge.config.vocab_size, torch.Generator().manual_seed(0)
        earlier = torch.randint(vocab, (1, N_EARLIER), generator=seeded)
        ids = torch.randint(vocab, (1, 6), generator=seeded) if ids is None else ids
        check_prompt(ids)
        p, most = ids.shape[1], self.forge.config.max_positions
        if p + n_new - 1 > most:  # the last new token is not fed
            raise ValueError(
                f"n_new: with {n_new} new tokens after {p}, expected at most {most} tokens, held "
                f"and fed, got {p + n_new - 1}"
            )
        for _ in range(n_new - 1):
            ids = torch.cat([ids, self.forge(ids)[:, -1:].argmax(-1)], dim=1)
        self.text = ids  # the last new token is not fed
        reference = self.refer(self.text)
        ids = torch.cat([ids, reference.logits[:, -1:].argmax(-1)], dim=1)
        self.reference = replace(reference, ids=ids, n_prompt=p)
        self.earlier = Text(earlier, self.refer)
        self.one_by_one = [p] + [1] * (n_new - 1)

    def build(self, forge_class) -> Forge:
        """A new forge of this class with the same weights: it may keep a counter."""
        is_small = self.model is None
        forge = forge_class.small() if is_small else forge_class.from_pretrained(self.model)
        dtype = self.dtype
        if dtype is None and forge.embedding.dtype in (torch.bfloat16, torch.float16):
            dtype = torch.float32  # in fewer bits rounding looks like a mistake
        if dtype in (None, forge.embedding.dtype):
            return forge
        loads = getattr(forge_class.from_pretrained, "__func__", None)
        shares = loads is Forge.from_pretrained.__func__
        if self.forge is not None and not is_small and shares:  # converted once, then shared
            forge.load_state_dict(self.forge.state_dict(), assign=True)
        return forge.to(dtype)

    def refer(self, text) -> Reference:
        """One pass over a text without a cache, everything kept."""
        with record(self.forge, keep=SEEN, max_bytes=MAX_BYTES) as run:
            logits = self.forge(text)
        return Reference(text, 0, logits, run[0])

    def rotate(self, keys, positions):
        return self.forge.rotate(keys, self.forge.rotation(positions))

    @property
    def in_chunks(self) -> list[int]:
        """Sizes 3, 1, 2, 3, 1, 2, ... that add up to the text."""
        sizes = []
        while (left := self.text.shape[1] - sum(sizes)) > 0:
            sizes.append(min(left, CHUNKS[len(sizes) % len(CHUNKS)]))
        return sizes

    def random_ids(self, *shape, seed):
        seeded = torch.Generator().manual_seed(seed)
        return torch.randint(self.forge.config.vocab_size, shape, generator=seeded)

    @property
    def known(self) -> Text:
        """The text itself."""
        return Text(self.text, lambda _: self.reference)

    @cached_property
    def other(self) -> Text:
        """The text that a second cache holds."""
        return Text(self.random_ids(1, N_OTHER, seed=1), self.refer)

    @cached_property
    def as_long(self) -> Text:
        """A text as long as the prompt."""
        return Text(self.random_ids(1, self.reference.n_prompt, seed=4), self.refer)

    @cached_property
    def two(self) -> Text:
        """A batch of two different texts."""
        return Text(self.random_ids(2, N_OTHER, seed=2), self.refer)

    @cached_property
    def further(self) -> Text:
        """The text, and more tokens after it; the text alone where the model takes no more."""
        n = FURTHER["small" if self.model is None else "model"]
        more = min(n, self.forge.config.max_positions) - self.text.shape[1]
        if more <= 0:
            return self.known
        return Text(torch.cat([self.text, self.random_ids(1, more, seed=3)], dim=1), self.refer)

    @property
    def further_sizes(self) -> list[int]:
        """Pieces of the longer text: the text's own, in two, then 5 + 1 + 1 (13 + 1 of a model).

        From half of the longest text on, the larger pieces have 18.
        """
        sizes = [self.text.shape[1] - 1, 1]
        while (left := self.further.fed - (held := sum(sizes))) > 0:
            pattern = (13, 1) if self.model else (5, 1, 1) if held < HALF else (18, 1, 1)
            sizes.append(min(left, pattern[len(sizes) % len(pattern)]))
        return [size for size in sizes if size]


def find_right(model, ids, n_new: int) -> RightForge:
    """The right forge of these; that of the small model is kept for the next check."""
    if model is None and ids is None:
        return _keep_right(None, n_new)
    if (
        model is None
        and getattr(ids, "dtype", None) == torch.int64
        and tuple(ids.shape[:-1]) == (1,)
    ):
        return _keep_right(tuple(ids[0].tolist()), n_new)
    return RightForge(model, ids, n_new)


@lru_cache(maxsize=8)
def _keep_right(ids: tuple[int, ...] | None, n_new: int) -> RightForge:
    return RightForge(None, ids if ids is None else torch.tensor([ids]), n_new)
