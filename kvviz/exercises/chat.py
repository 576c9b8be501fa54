"""Two turns of a chat as the plain loop writes them, which notebook 03 compares with."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kvviz.checking.causes import ADVICE
from kvviz.words import pluralize


@dataclass(frozen=True)
class Chat:
    """Two turns as the plain loop writes them, without a cache."""

    text: torch.Tensor  # (1, all): prompt, first answer, message and second answer
    n_prompt: int
    n_first: int
    n_more: int
    goes_on: int  # the token that would follow the first answer if nothing stopped it
    logits: torch.Tensor  # (1, all - 1, vocabulary)
    stop: int | None = None  # the token that ends a turn early
    stopped: bool = False  # whether the first answer ends with the stop token

    @property
    def tokens(self) -> list[int]:
        return self.text[0].tolist()

    @property
    def end_of_first(self) -> int:
        """Where the message begins."""
        return self.n_prompt + self.n_first

    @property
    def second(self) -> list[int]:
        """The second answer's tokens."""
        return self.tokens[self.end_of_first + self.n_more :]

    @property
    def more(self) -> list[int]:
        return self.tokens[self.end_of_first : self.end_of_first + self.n_more]

    def tell_length(self, end: int, before: list[int]) -> str | None:
        """What is wrong with a first answer that ends at `end`, after the tokens `before`."""
        n, text = end - self.n_prompt, [*self.tokens[: self.end_of_first], self.goes_on]
        if n == self.n_first or not before or before != text[end - len(before) : end]:
            return None
        expected = f"turn one has {pluralize(n, 'new token')}, expected {self.n_first}"
        if self.stopped:
            return f"{expected}: it ends with the stop token, and the stop token is part of it."
        return f"{expected}. {ADVICE['too many tokens' if n > self.n_first else 'too few tokens']}"


def write_plainly(model, ids, more, n_new, stop, known=None) -> Chat:
    """Both turns without a cache; a turn ends after n_new tokens, or with the token `stop`.

    `known` keeps which token follows a text, so that no text is run twice.
    """
    text, n_first, goes_on = ids, 0, -1
    known = {} if known is None else known

    def choose():
        so_far = tuple(text[0].tolist())
        if so_far not in known:
            known[so_far] = model(text, use_cache=False).logits[:, -1:].argmax(-1)
        return known[so_far]

    for turn in (1, 2):
        for _ in range(n_new):
            newest = choose()
            text = torch.cat([text, newest], dim=1)
            if newest.item() == stop:
                break
        if turn == 1:
            n_first, goes_on = text.shape[1] - ids.shape[1], choose().item()
            text = torch.cat([text, more], dim=1)
    logits = model(text[:, :-1], use_cache=False).logits.float().cpu()
    stopped = text[0, ids.shape[1] + n_first - 1].item() == stop
    return Chat(text, ids.shape[1], n_first, more.shape[1], goes_on, logits, stop, stopped)
