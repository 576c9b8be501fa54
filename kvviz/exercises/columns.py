"""Notebook 10: which columns does a cache of 64 keep?"""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F

from kvviz.arguments import describe
from kvviz.checking.learner_code import is_unwritten, to_tensor
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, run_answer, with_hints
from kvviz.exercises.leaderboard import Leaderboard
from kvviz.forge import Forge, KVCache, KVEntry
from kvviz.progress import bar
from kvviz.texts import load_text

BUDGET, STEP, FED = 64, 32, 576  # columns held after a call; tokens a call; tokens of the story
YOUNG = 4  # of the newest columns, to say that they were dropped
TO_BEAT = 3.46  # what the newest 63 columns and column 0 give on the default model
FACTS = {
    " eleven": " The lighthouse had not been lit for",
    " Teeth": " The villagers called the rocks the",
    " mercury": " The lamp turned on a bath of",
    " nine": " He had turned the lamp by hand for",
}
BOARD = Leaderboard("loss", to_beat={"window and first": TO_BEAT})


class _Refused(Exception):
    """The columns that the learner's function returned can't be kept; the message says why."""


class _Reading(NamedTuple):
    """What came of one pass over the text: the loss at each position, and what was dropped."""

    losses: torch.Tensor
    cache: _Kept

    @property
    def loss(self) -> float:
        """The mean over what is predicted once the cache is full."""
        return float(self.losses[BUDGET:].mean())


class _Kept(KVCache):
    """Holds what the learner's function keeps, layer by layer, and notes what it drops."""

    next_position = 0

    def __init__(self, n_layers: int, keep):
        super().__init__(n_layers)
        self.keep, self.lost_first, self.young = keep, None, 0
        self.positions = [torch.arange(0)] * n_layers
        self.scores = [torch.zeros(0)] * n_layers

    def collect(self, layer: int, weights) -> None:
        old, new = self.scores[layer], weights[0].sum((0, 1))
        self.scores[layer] = new + F.pad(old, (0, len(new) - len(old)))

    def update(self, layer: int, entry: KVEntry) -> None:
        fed = entry.keys.shape[2] - len(self.positions[layer])
        self.next_position += fed * (layer == 0)
        new = torch.arange(self.next_position - fed, self.next_position)
        positions = torch.cat([self.positions[layer], new])
        kept = self._choose(layer, self.scores[layer], positions)
        self._note(positions, positions[kept])
        self.positions[layer], self.scores[layer] = positions[kept], self.scores[layer][kept]
        super().update(layer, KVEntry(*(x[:, :, kept] for x in entry)))

    def _choose(self, layer: int, scores, positions) -> torch.Tensor:
        where = f"with {len(positions)} columns in layer {layer}, your function"
        answer, problem = run_answer(self.keep, scores.clone(), positions.clone())
        if problem is NOT_DONE:
            raise _Refused(f"{where} returned nothing. Return the columns to keep.")
        if problem:
            raise _Refused(f"with {len(positions)} columns in layer {layer}: {problem.message}")
        kept = _read_columns(answer, len(positions), where)
        if len(kept) > BUDGET:
            raise _Refused(f"{where} kept {len(kept)}. The budget is {BUDGET}.")
        return kept

    def _note(self, before, after) -> None:
        dropped = before[~torch.isin(before, after)]
        if self.lost_first is None and (dropped == 0).any():
            self.lost_first = self.next_position
        self.young += int((dropped > before[-1] - YOUNG).sum())


def _read_columns(answer, n: int, where: str) -> torch.Tensor:
    """The columns kept, in order, from their indexes or from one True or False for each."""
    columns = to_tensor(list(answer) if isinstance(answer, range | set) else answer)
    if columns is None or columns.ndim != 1 or (columns.is_floating_point() and len(columns)):
        came = describe(answer) if columns is None else f"{columns.dtype}, {tuple(columns.shape)}"
        expected = "the columns' indexes, or True or False for each column"
        raise _Refused(f"{where} returned {came}. Return {expected}.")
    if columns.dtype == torch.bool:
        if len(columns) != n:
            raise _Refused(f"{where} returned {len(columns)} booleans. Return one for each column.")
        return columns.nonzero()[:, 0]
    columns = torch.where(columns < 0, columns + n, columns).long()
    if len(columns) and not 0 <= int(columns.min()) <= int(columns.max()) < n:
        raise _Refused(
            f"{where} returned an index that isn't there. They go from 0 to {n - 1}, whatever the "
            "tokens' positions are."
        )
    if len(columns.unique()) < len(columns):
        raise _Refused(f"{where} returned the same column twice.")
    return columns.sort().values


class _Watched(Forge):
    cache = None

    def attend(self, layer, query, keys, values, mask):
        output, weights = super().attend(layer, query, keys, values, mask)
        if self.cache is not None:
            self.cache.collect(layer, weights)
        return output, weights


def _read_text(forge: _Watched, ids, keep, step: int = STEP) -> _Reading:
    """Feed `ids` to a cache that keeps what `keep` says: as many as fit, then `step` a call."""
    cache = _Kept(len(forge.layers), keep)
    forge.cache = cache
    sizes = [BUDGET, *[step] * ((ids.shape[1] - BUDGET) // step)]
    pieces = ids[:, : sum(sizes)].split(sizes, dim=1)
    try:
        logits = torch.cat([forge(p, cache) for p in bar(pieces, desc="reading")], dim=1)
    finally:
        forge.cache = None
    losses = F.cross_entropy(logits[0, :-1], ids[0, 1 : sum(sizes)], reduction="none")
    return _Reading(losses, cache)


def _find_facts(forge: _Watched, tokenizer, cache: _Kept) -> dict[str, bool]:
    """{fact: whether it's the first choice when the cache is asked for it}."""
    found = {}
    for fact, question in FACTS.items():
        asked = KVCache(len(forge.layers))
        asked.next_position = cache.next_position
        for layer in range(len(forge.layers)):
            asked.update(layer, cache.get(layer))
        answer = forge(tokenizer(question, return_tensors="pt").input_ids, asked)[0, -1].argmax()
        found[fact.strip()] = int(answer) == tokenizer(fact).input_ids[0]
    return found


@with_hints(
    "Which column do heads need for their spare weights? Which ones had no time to score?",
    "Keep the newest columns, say 32, whatever their scores are. Among the others, keep those with "
    "the highest scores: column 0 is one of them.",
)
def keep_columns(function, model, tokenizer) -> Feedback:
    """Notebook 10: `keep_columns(scores, positions)` returns the columns that a layer keeps.

    Both are tensors with a number per column held: the attention that it has received so far, and
    its token's position. At most 64 columns may stay. Each attempt goes on a leaderboard.

    Raises:
        TypeError: `tokenizer` can't be called with a text.
        ValueError: `model` isn't one that `Forge.from_pretrained` takes.

    >>> kv.exercises.keep_columns(..., model, tokenizer=None).state
    'not done yet'
    """
    if function is Ellipsis or is_unwritten(function):
        return NOT_DONE
    forge = _Watched.from_pretrained(model)
    if not callable(tokenizer) or isinstance(tokenizer, type):
        came = describe(tokenizer)
        raise TypeError(f"tokenizer: expected the one that load_model returned, but got {came}")
    ids = tokenizer(load_text(), return_tensors="pt").input_ids[:, :FED]
    return _judge(function, forge, ids, lambda cache: _find_facts(forge, tokenizer, cache))


def _judge(function, forge: _Watched, ids, find_facts) -> Feedback:
    try:
        reading = _read_text(forge, ids, function)
    except _Refused as refused:
        return reject(str(refused))
    loss, facts = round(reading.loss, 2), find_facts(reading.cache)
    BOARD.add(function, loss, checks=facts)
    return BOARD.show(_say(reading, loss, facts, forge, ids))


def _say(reading: _Reading, loss: float, facts: dict[str, bool], forge, ids) -> Feedback:
    known = [fact for fact, is_found in facts.items() if is_found]
    said = f"loss {loss:.2f} with at most {BUDGET} columns; "
    said += f"it knows {len(known)} of {len(facts)} facts" + f": {', '.join(known)}" * bool(known)
    if loss < TO_BEAT:
        return accept(said)
    said += f". A window and the first column get {TO_BEAT:.2f}. "
    cache = reading.cache
    if cache.lost_first is not None:
        picture = _draw_losses(reading, forge, ids, cache.lost_first)
        said += f"You dropped column 0 once {cache.lost_first} tokens were fed: see the loss there."
        return reject(said, picture)
    if cache.young:
        said += "You dropped some of the newest four tokens, which had no time to earn a score."
    return reject(said.strip())


def _draw_losses(reading: _Reading, forge: _Watched, ids, lost: int):
    """The loss above a full cache's, position by position."""
    from kvviz.drawing.curves import draw_curves

    full = F.cross_entropy(forge(ids)[0, :-1], ids[0, 1:], reduction="none")[: len(reading.losses)]
    above = (reading.losses - full).unfold(0, BUDGET, 8).mean(-1)
    return draw_curves(
        [BUDGET + 8 * k for k in range(len(above))],
        {"your cache": above},
        title="Your loss above the full cache's",
        xlabel="position",
        ylabel=f"mean of the last {BUDGET} tokens",
        sentence=f"Your loss above the full cache's, by position: column 0 is gone from {lost} on",
    )
