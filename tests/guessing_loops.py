"""Greedy loops that guess: several tokens are fed in one pass, and the wrong guesses are cropped.

`RIGHT` pass; `WRONG` must be given that name. Each differs from `Guessing` in what it overrides.
"""

import copy
from functools import cache

import torch
from transformers import DynamicCache, StaticCache


class Guessing:
    """The right loop. A guess is accepted if it's the choice of the row before its own."""

    k = 3

    def __init__(self, guess=None):
        self.guess = guess or guess_from_the_text

    @torch.no_grad()
    def __call__(self, model, ids, n):
        self.n_prompt, self.position = ids.shape[1], ids.shape[1]
        kept, text = self.fill(model, ids)
        while (left := ids.shape[1] + n - text.shape[1]) > 0:
            guesses = self.guess(model, text, self.limit(left))
            fed = self.feed(text, guesses)
            best = self.call(model, fed, kept).logits.argmax(-1)
            n_right = self.count(fed, best)
            text, before = self.extend(text, fed, best, n_right), text
            kept = self.roll_back(kept, fed.shape[1] - 1 - n_right, n_right) or kept
            self.finish(model, kept, text, before)
        return self.give(text, ids.shape[1] + n)

    def fill(self, model, ids):
        kept = self.new_cache(model)
        return kept, torch.cat([ids, model(ids, cache=kept).logits[:, -1:].argmax(-1)], dim=1)

    def new_cache(self, model):
        return DynamicCache(config=model.config)

    def limit(self, left):
        return min(self.k, left - 1)

    def feed(self, text, guesses):
        return torch.cat([text[:, -1:], guesses], dim=1)

    def call(self, model, fed, kept):
        return model(fed, cache=kept)

    def count(self, fed, best):
        return int((best[:, :-1] == fed[:, 1:]).long().cumprod(1).sum())

    def extend(self, text, fed, best, n_right):
        return torch.cat([text, best[:, : n_right + 1]], dim=1)

    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-n_wrong)

    def finish(self, model, kept, text, before):
        """After each pass; nothing in the right loop."""

    def give(self, text, length):
        return text


# -- where guesses come from -----------------------------------------------------------------------


def guess_from_the_text(model, text, k):
    """The tokens that followed the newest one when it last stood in the text."""
    *earlier, newest = text[0].tolist()
    at = max((i for i, token in enumerate(earlier) if token == newest), default=0)
    return text[:, at + 1 : at + 1 + k]


@cache
def draft_of(model, noise=0.01):
    """A second model that often, but not always, agrees with the first."""
    draft, drawn = copy.deepcopy(model), torch.Generator().manual_seed(1)
    for weight in draft.parameters():
        if weight.ndim > 1:
            weight.data.add_(torch.randn(weight.shape, generator=drawn) * noise)
    return draft


def guess_with(draft):
    """The greedy tokens of a second model."""

    def guess(model, text, k):
        start = text.shape[1]
        for _ in range(k):
            text = torch.cat([text, draft(text, use_cache=False).logits[:, -1:].argmax(-1)], dim=1)
        return text[:, start:]

    return guess


def guess_the_same(model, text, k):
    return torch.full((1, k), 7)


def guess_from(known):
    """The right continuation of one text, by look-up; of any other, what stands in the text."""

    def guess(model, text, k):
        n = text.shape[1]
        if torch.equal(text, known[:, :n]):
            return known[:, n : n + k]
        return guess_from_the_text(model, text, k)

    return guess
