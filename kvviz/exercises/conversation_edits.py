"""Notebook 09: which edits of a conversation leave a cached prefix usable."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from kvviz.arguments import describe
from kvviz.exercises.answers import to_bool
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, with_hints
from kvviz.forge import Forge, KVCache, KVEntry

PREFIX, FAR = 12, 40  # tokens in the prefix, and how far some edits move them


class _Conversation(NamedTuple):
    """A small model, the tokens of a prefix, and what to feed after it."""

    forge: Forge
    prefix: Tensor
    question: Tensor
    other: Tensor
    date: Tensor

    def fill(self, ids: Tensor) -> KVCache:
        """A cache that holds these tokens."""
        cache = KVCache(len(self.forge.layers))
        self.forge(ids, cache)
        return cache

    def move(self, cache: KVCache, columns: Tensor, by: Tensor | int) -> KVCache:
        """Keep these columns, their keys rotated `by` positions more, (columns,) or one for all."""
        kept = KVCache(len(cache))
        rotation = self.forge.rotation(torch.zeros_like(columns) + by)
        for layer in range(len(cache)):
            keys, values = (part[:, :, columns] for part in cache.get(layer))
            kept.update(layer, KVEntry(self.forge.rotate(keys, rotation), values))
        return kept


def _make_conversation() -> _Conversation:
    ids = torch.randint(0, 101, (1, 40), generator=torch.Generator().manual_seed(9))
    return _Conversation(Forge.small(), *ids[:, :22].split([PREFIX, 4, 4, 2], dim=1))


# Each returns the cache that's kept, what is fed after it, and the whole text as it then reads.


def _ask_another(c: _Conversation):
    return c.fill(c.prefix), c.other, torch.cat([c.prefix, c.other], 1)


def _put_date_in_front(c: _Conversation):
    cache, n = c.fill(c.date), c.date.shape[1]
    moved = c.move(c.fill(c.prefix), torch.arange(PREFIX), by=n)
    for layer in range(len(cache)):
        cache.update(layer, c.forge.append(cache.get(layer), moved.get(layer)))
    return cache, c.question, torch.cat([c.date, c.prefix, c.question], 1)


def _drop_last(c: _Conversation):
    kept = torch.arange(PREFIX - 3)
    cache = c.move(c.fill(c.prefix), kept, by=0)
    return cache, c.question, torch.cat([c.prefix[:, kept], c.question], 1)


def _drop_middle(c: _Conversation):
    kept = torch.tensor([i for i in range(PREFIX) if i != 5])
    cache = c.move(c.fill(c.prefix), kept, by=torch.arange(PREFIX - 1) - kept)
    return cache, c.question, torch.cat([c.prefix[:, kept], c.question], 1)


def _renumber_all(c: _Conversation):
    cache = c.move(c.fill(c.prefix), torch.arange(PREFIX), by=FAR)
    cache.next_position = FAR + PREFIX
    return cache, c.question, torch.cat([c.prefix, c.question], 1)


def _renumber_question(c: _Conversation):
    cache = c.fill(c.prefix)
    cache.next_position = FAR + PREFIX
    return cache, c.question, torch.cat([c.prefix, c.question], 1)


class _Edit(NamedTuple):
    """An edit, and what to ask somebody whose answer is wrong."""

    make: Callable[[_Conversation], tuple[KVCache, Tensor, Tensor]]
    hint: str


EDITS = {
    "another question follows": _Edit(_ask_another, "Does anything before the question change?"),
    "a date is put in front": _Edit(
        _put_date_in_front,
        "Move the keys, and their distances are right. But what had the prefix read when it was "
        "cached?",
    ),
    "its last 3 tokens are dropped": _Edit(
        _drop_last, "Which of the tokens that stay had read the ones that go?"
    ),
    "one token in the middle is dropped": _Edit(
        _drop_middle,
        "Move the later keys one back, and distances are right. But what had those tokens read?",
    ),
    "all is numbered from 40 on": _Edit(
        _renumber_all, "Its keys move, and so does the question. Which distances change?"
    ),
    "the prefix stays at 0 to 11 and the question is numbered from 40 on": _Edit(
        _renumber_question, "How far is it from the question to the prefix, then and now?"
    ),
}


@with_hints(
    "Ask two things about each edit. Is a distance still changed when the keys are where the edit "
    "wants them? And does the past of a token that stays change?",
    "Three of the six are usable. Moving keys repairs a distance, unless the edit says that they "
    "stay. Nothing repairs a changed past.",
)
def edits(answers: Mapping) -> Feedback:
    """Notebook 09: {edit: True or False}, whether a cached prefix can still be used after it.

    Each edit is tried on the small forge: the entries are cropped and moved, what's new is fed
    after them, and the logits are compared with those of the whole text without a cache.

    >>> kv.exercises.edits({"another question follows": True})
    · not done yet: right about 1 of 6. Still to answer: a date is put in front, its last ...
    """
    if not isinstance(answers, Mapping):
        return reject(f"expected {{edit: True or False}}, but got {describe(answers)}")
    if unknown := [name for name in answers if name not in EDITS]:
        return reject(f"there's no edit {unknown[0]!r:.60}; the edits are {', '.join(EDITS)}")
    given = {name: said for name, said in answers.items() if said is not ... and said is not None}
    if not given:
        return Feedback(NOT_DONE.state, "replace each ... with True or False")
    right, wrong = [], []
    for name, said in given.items():
        if (answer := to_bool(said)) is None:
            return reject(f"{name}: expected True or False, but got {describe(said)}")
        (right if answer == is_usable(name) else wrong).append(name)
    found = f"right about {len(right)} of {len(EDITS)}"
    if wrong:
        return reject(f"{found}. Not right: {wrong[0]}. {EDITS[wrong[0]].hint}")
    if left := [name for name in EDITS if name not in given]:
        return Feedback(NOT_DONE.state, f"{found}. Still to answer: {', '.join(left)}")
    return accept("right about all six, as the small model's logits say")


def is_usable(name: str) -> bool:
    """Whether the logits after this edit are those of the edited text, recomputed.

    >>> from kvviz.exercises.conversation_edits import is_usable
    >>> is_usable("another question follows")
    True
    """
    c = _make_conversation()
    cache, fed, whole = EDITS[name].make(c)
    right = c.forge(whole)[:, -fed.shape[1] :]
    return bool((c.forge(fed, cache) - right).abs().max() <= 1e-4 * right.abs().max())
