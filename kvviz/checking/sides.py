"""One layer in one step, cut out of a recorded loop, a traced cache, or the right text.

Everything is copied: what is shown later must not keep a whole recording in memory.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from kvviz.checking.columns import match_columns
from kvviz.checking.compare import SEEN
from kvviz.checking.evidence import LayerEvidence
from kvviz.checking.seen import Seen
from kvviz.recording.square import Square
from kvviz.recording.step import Step

NEAR = 0.1  # how far a column kept in fewer bits may be from the one it was, relative to its size
Label = Callable[[int], str]


def see_right(whole: Step, layer: int, rows: range, step: int, label: Label, sequence=0) -> Seen:
    """What attention should have seen in a step that computes these rows of the right text."""
    query, keys, values, output = (whole.kept[name][layer][sequence] for name in SEEN)
    at, end = slice(rows.start, rows.stop), rows.stop
    n_held = rows.start
    tokens = [label(token) for token in whole.token_ids[sequence, :end].tolist()]
    states = ("read",) * n_held + ("new",) * len(rows)
    blank = _make_blank(step, layer, sequence, tokens, states, rows, ("new",) * len(rows), n_held)
    parts = query[:, at], keys[:, :end], values[:, :end], output[:, at]
    return Seen(blank, *(x.clone() for x in parts), tuple(range(end)))


def see_step(step: Step, layer: int, sequence: int = 0) -> Seen:
    """What attention saw in a recorded step."""
    query, keys, values, output = (step.kept[name][layer][sequence] for name in SEEN)
    positions = step.column_positions(layer)
    filled = positions >= 0
    parts = query, keys[:, filled], values[:, filled], output
    blank = step.square(layer, 0, sequence)
    return Seen(blank, *(x.clone() for x in parts), tuple(positions[filled].tolist()))


def see_pass(layer: LayerEvidence, label: Label) -> Seen:
    """What attention saw in one pass through a learner's forge; columns are named by what is in
    them, since a faulty cache may have them anywhere."""
    step, sequence, number = layer.step, layer.sequence, layer.number
    query, keys, values, output = (
        None if (x := step.kept[name].get(number)) is None else x[sequence] for name in SEEN
    )
    texts = [layer.reference.whole, *(text.whole for text in (layer.others or {}).values())]
    keys_of, values_of = (
        _identify(x, [text.kept[name][number] for text in texts], sequence)
        for name, x in (("keys", keys), ("values", values))
    )
    n_rows, known = query.shape[1], [t for text in texts for t in _tokens_of(text, sequence)]
    n, n_text = max(len(keys_of), len(values_of)), layer.reference.whole.fed
    fed = step.token_ids[sequence].tolist()
    rows = range(layer.held, layer.held + n_rows)

    def name(column, found, other):
        which = next((x[column] for x in (found, other) if column < len(x) and x[column] >= 0), -1)
        new = column - layer.held
        return label(known[which] if which >= 0 else fed[new] if 0 <= new < len(fed) else -1)

    def states(found):
        kinds = [_name_state(i, j, rows, layer, n_text) for j, i in enumerate(found)]
        return (*kinds, *["empty"] * (n - len(found)))

    longest = range(max(n, rows.stop))
    tokens, value_tokens = (
        [name(j, *pair) for j in longest] for pair in ((keys_of, values_of), (values_of, keys_of))
    )
    again = n_rows > step.fed
    row_states = ["recomputed" if again and r < layer.fed_before else "new" for r in range(n_rows)]
    blank = _make_blank(
        step.index, number, sequence, tokens, states(keys_of), rows, row_states, layer.held,
        value_tokens=None if value_tokens == tokens else tuple(value_tokens),
        value_states=None if states(values_of) == states(keys_of) else states(values_of),
        own_columns=_find_own_columns(keys_of, layer.end - n_rows, rows),
    )  # fmt: skip
    return Seen(blank, query, keys, values, output, tuple(range(n)))


def _tokens_of(text: Step, sequence: int) -> list[int]:
    return text.token_ids[min(sequence, len(text.token_ids) - 1)].tolist()


def _identify(ours: Tensor, texts: list[Tensor], sequence: int) -> list[int]:
    """For each column, where it is in the texts, one after the other; of several, its own."""
    right = torch.cat([text[min(sequence, len(text) - 1)] for text in texts], dim=1)
    matches = match_columns(ours, right, within=NEAR)
    found = []
    for column, fits in enumerate(matches.tolist()):
        own = column < len(fits) and fits[column]
        found.append(column if own else fits.index(True) if any(fits) else -1)
    return found


def _name_state(which: int, column: int, rows: range, layer: LayerEvidence, n_text: int) -> str:
    """The state of a column that holds token `which` of the texts, -1 for an unknown one."""
    if which >= n_text:
        return "earlier"
    again = len(rows) > layer.step.fed
    if which < 0:
        return "new" if column >= layer.held else "read"
    if again:
        return "recomputed" if which < layer.fed_before else "new"
    return "new" if which >= layer.fed_before else "read"


def _find_own_columns(keys_of: list[int], first: int, rows: range) -> tuple[int, ...]:
    """The column of each row's own key, which a faulty cache may have put elsewhere; `first` is
    the position in the text of the first row's token."""
    tokens = range(first, first + len(rows))
    pairs = zip(tokens, rows, strict=True)
    return tuple(keys_of.index(t) if keys_of.count(t) == 1 else row for t, row in pairs)


def _make_blank(step, layer, sequence, tokens, states, rows, row_states, held, **more) -> Square:
    """A square without its attention."""
    masked = torch.arange(len(states)) > torch.tensor(list(rows))[:, None]
    return Square(
        step=step, layer=layer, head=0, sequence=sequence, tokens=tuple(tokens),
        column_states=tuple(states), row_positions=tuple(rows), row_states=tuple(row_states),
        weights=None, masked=masked.numpy(), cached=True, fed=len(rows), held_before=held,
        held_after=held + len(rows), gap=float("nan"), bytes=None, **more,
    )  # fmt: skip
