"""What the picture of a cache's verdict shows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from kvviz.checking.cache_rules import find_difference, walk_layers
from kvviz.checking.evidence import LayerEvidence
from kvviz.checking.sides import Label, see_pass, see_right
from kvviz.checking.trial import Feeding, Trial
from kvviz.checking.verdict_picture import Mistake, Strip, keep_mistake, keep_strip
from kvviz.tokens import find_tokenizer, piece


def find_cache_mistake(trial: Trial) -> Mistake | Strip | None:
    """The first difference in what attention saw; if there is none, the steps fed last."""
    label = _make_label(trial)
    for feeding in trial.feedings:
        for evidence in _list_differences(trial, feeding):
            return keep_mistake([_cut(evidence, label)], evidence.gate)
    return find_cache_strip(trial, trial.feedings[-1]) if trial.feedings else None


def _list_differences(trial: Trial, feeding: Feeding) -> Iterator[LayerEvidence]:
    """The first in each sequence; see `Trial.cause_in`."""
    others, n_earlier = feeding.others, trial.right.earlier.fed if feeding.others else 0
    for sequence in range(feeding.reference.ids.shape[0]):
        evidence = find_difference(
            feeding.passes, feeding.reference, trial.right.rotate, n_earlier, others, sequence
        )
        if evidence:
            yield evidence


def find_cache_strip(trial: Trial, feeding: Feeding) -> Strip | None:
    """The first steps of a text that was fed to the cache."""
    label, cuts = _make_label(trial), {}
    reference, rotate = feeding.reference, trial.right.rotate
    for layer in walk_layers(feeding.passes, reference, reference.gate, rotate):
        cuts.setdefault(layer.index, {})[layer.number] = partial(see_pass, layer, label)
    return keep_strip(cuts.values(), feeding.rows)


def _cut(layer: LayerEvidence, label: Label):
    whole, rows = layer.reference.whole, range(layer.fed_before, layer.end)
    right = see_right(whole, layer.number, rows, layer.step.index, label, layer.sequence)
    return see_pass(layer, label), right


def _make_label(trial: Trial) -> Label:
    """Gives a token its text, where the model came with a tokenizer, and else its number."""
    tokenizer = trial.right.model is not None and find_tokenizer(trial.right.model)
    if not tokenizer:
        return lambda token: "?" if token < 0 else str(token)
    return lambda token: "?" if token < 0 else piece(tokenizer, token)
