"""Cut one head's square out of a recorded step."""

from __future__ import annotations

import torch

from kvviz.recording.square import Square
from kvviz.tokens import join_pieces


def cut_square(step, layer: int, head: int, sequence: int) -> Square:
    """The square of one head of `step`, a `Step` that has this layer, head and sequence."""
    rows, n_columns = step.row_positions(layer), max(step.visible, step.slots or 0)
    weights, masked = _cut_attention(step, layer, head, sequence, rows, n_columns)
    key_order, value_order = step.lineage.select_orders(sequence)
    keys = _describe_columns(step, layer, sequence, key_order, "keys_known", n_columns)
    values = _describe_columns(step, layer, sequence, value_order, "values_known", n_columns)
    tokens, value_tokens = _name_columns(step, keys[0], values[0], n_columns)
    own = rows if key_order is None else (key_order.rows >= 0).nonzero()[-len(rows) :, 0]
    return Square(
        step=step.index,
        layer=layer,
        head=head,
        sequence=sequence,
        tokens=tokens,
        column_states=keys[1],
        row_positions=tuple(rows.tolist()),
        row_states=_describe_rows(step, sequence)[-len(rows) :],
        weights=weights,
        masked=masked,
        cached=step.cached,
        fed=step.fed,
        held_before=step.held_before,
        held_after=step.held_after,
        gap=step.gaps.get(layer, float("nan")),
        bytes=step.bytes,
        own_columns=tuple(own.tolist()),
        value_tokens=None if values == keys else value_tokens,
        value_states=None if values == keys else values[1],
        implementation=step.implementation,
        kv_head=_find_kv_head(step, layer, head),
        surplus=_list_surplus(step),
        cropped=tuple(rows.tolist()[max(0, len(rows) - (step.cropped or 0)) :]),
        n_layers=sum(held > 0 for held in step.after.values()),
        n_sequences=step.token_ids.shape[0],
    )


def _find_kv_head(step, layer, head):
    """The key/value head that a query head reads: neighbours share one."""
    if "attention" not in step.kept:
        return 0
    n_sharing = step.attention[layer].shape[1] // step.kv_heads_by_layer[layer]
    return head // n_sharing


def _list_surplus(step):
    """Columns that earlier steps wrote beyond one for each token fed, back to where they began."""
    surplus, held = [], step.held_before
    for earlier in reversed(step.run[: step.index]):
        if earlier.held_after != held:
            break
        surplus += range(earlier.visible, held)
        held = earlier.held_before
    return tuple(sorted(surplus))


def _cut_attention(step, layer, head, sequence, rows, n_columns):
    """Weights (Tq, columns), None if not kept, and where the mask let nothing through."""
    if "attention" not in step.kept:
        return None, (torch.arange(n_columns) > rows[:, None]).numpy()
    positions = step.column_positions(layer)
    is_filled = positions >= 0
    filled = positions[is_filled]
    weights = torch.full((len(rows), n_columns), torch.nan)
    weights[:, filled] = step.attention[layer][sequence, head][:, is_filled]
    allowed = step.kept["allowed"][layer]  # (B or 1, H or 1, Tq, Tk)
    allowed = allowed[min(sequence, len(allowed) - 1), min(head, allowed.shape[1] - 1)]
    masked = torch.zeros(len(rows), n_columns, dtype=torch.bool)
    masked[:, filled] = ~allowed[:, is_filled]
    return weights.numpy(), masked.numpy()


def _describe_columns(step, layer, sequence, order, known, n_columns):
    """The token's id and the state of each column, for the keys or for the values."""
    if order is None:
        tokens, is_seen = step.trace_columns(sequence, known)
        rows = [column - step.held_before for column in range(step.visible)]
    else:
        tokens, rows = order.tokens.tolist(), order.rows.tolist()
        is_seen = [True] * len(tokens)
    attended = set(step.column_positions(layer).tolist())
    pads, row_states = _list_pads(step, sequence), _describe_rows(step, sequence)
    states = []
    for column, row in enumerate(rows):
        if pads[column]:
            states.append("pad")
        elif column not in attended:
            states.append("dropped")
        elif row >= 0:
            states.append(row_states[row])
        else:
            states.append("read" if is_seen[column] else "earlier")
    n_empty = n_columns - step.visible
    return tokens, (*states, *["empty"] * n_empty)


def _name_columns(step, key_ids, value_ids, n_columns):
    """The text of each column's key, and of its value: the same if both are of one token."""
    keys, values = (join_pieces([*map(step.label, ids)]) for ids in (key_ids, value_ids))
    ids = enumerate(zip(key_ids, value_ids, strict=True))
    values = [keys[j] if key == value else values[j] for j, (key, value) in ids]
    empty = [""] * (n_columns - step.visible)
    return (*keys, *empty), (*values, *empty)


def _describe_rows(step, sequence):
    """The state of each row fed."""
    pads = _list_pads(step, sequence)[step.held_before :]
    repeats = step.lineage.recomputed[sequence].tolist()
    return tuple(
        "pad" if is_pad else "recomputed" if is_repeat else "new"
        for is_pad, is_repeat in zip(pads, repeats, strict=True)
    )


def _list_pads(step, sequence):
    """Whether each position is padding."""
    return [False] * step.visible if step.pads is None else step.pads[sequence].tolist()
