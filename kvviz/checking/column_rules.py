"""The rules that name a mistake in the columns: what the cache held, and what attention saw.

Queries are right. Each rule says what it looks at, and what else would leave the same trace.
"""

from __future__ import annotations

from kvviz.checking.causes import UNKNOWN
from kvviz.checking.columns import list_positions, match_columns, name_positions
from kvviz.checking.drift_rules import held_came_back_changed
from kvviz.checking.evidence import LayerEvidence
from kvviz.checking.missing_rules import (
    columns_missing,
    moved_and_rotated_again,
    moved_but_not_rotated_again,
)
from kvviz.checking.precision_rules import lower_precision, scale_over_all_tokens
from kvviz.checking.query_rules import key_at_another_position
from kvviz.words import pluralize


def columns_not_a_number(layer: LayerEvidence):
    """NaN comes first: nothing else can be read from such numbers."""
    for name, x in (("key", layer.columns.keys), ("value", layer.columns.values)):
        if x.isnan().any():
            column = int(x.isnan().amax((0, 2)).nonzero()[0])
            who = "came out of the cache" if layer.changed_inside else "reached attention"
            says = f"the {name} of position {column} {who} as not a number"
            return layer.cause("not a number", says, column)


def unequal_lengths(layer: LayerEvidence):
    """More keys than values, or fewer: in attention's hands, or out of the cache already?"""
    n_keys, n_values = layer.columns.keys.shape[1], layer.columns.values.shape[1]
    if n_keys != n_values:
        who = "came out of the cache" if layer.held else "reached attention"
        both = f"{pluralize(n_keys, 'key')} and {pluralize(n_values, 'value')}"
        says = f"{both} {who}"
        if (past := layer.entry("pasts")) and past[0].shape[1] == past[1].shape[1]:
            says = f"append gave attention {both}"
        return layer.cause("keys and values of unequal length", says)


def another_sequences_columns(layer: LayerEvidence):
    """In a batch: the columns of another sequence, which ran beside this one."""
    whole, n = layer.reference.whole, layer.fed_before
    others = [i for i in range(whole.token_ids.shape[0]) if i != layer.sequence]
    for name, (ours, own) in zip(("keys", "values"), layer.columns.pairs, strict=True):
        for other in others if n and layer.differs(ours, own) else ():
            right = whole.kept[name][layer.number][other][:, : own.shape[1]]
            if ours.shape == right.shape and match_columns(ours, right).diagonal()[:n].all():
                says = f"sequence {layer.sequence} was given {name} that sequence {other} had"
                return layer.cause("another sequence's entry", f"{says} stored")


def keys_and_values_swapped(layer: LayerEvidence):
    n, columns = layer.fed_before, layer.columns
    if not n or columns.keys.shape != columns.right_values.shape:
        return None
    pairs = (columns.keys, columns.right_values), (columns.values, columns.right_keys)
    if all(match_columns(*pair).diagonal()[:n].all() for pair in pairs):
        says = "values came out of the cache as keys, and keys as values"
        return layer.cause("keys and values swapped", says)


def keys_apart_from_values(layer: LayerEvidence):
    columns = layer.columns
    if columns.is_known and not columns.is_paired:
        pairs = enumerate(zip(columns.keys_of, columns.values_of, strict=True))
        i, (key, value) = next((i, pair) for i, pair in pairs if pair[0] != pair[1])
        key, value = columns.expected[key], columns.expected[value]
        says = f"column {i} has the key of position {key} and the value of position {value}"
        return layer.cause("keys apart from their values", says, i)


def past_not_appended(layer: LayerEvidence):
    """Attention saw the new tokens alone; the cache had returned the others."""
    columns, own = layer.columns, list(range(layer.fed_before, layer.end))
    if columns.is_paired and columns.found == own and layer.fed_before:
        if (past := layer.entry("pasts")) and past[0].shape[1] == layer.fed_before:
            says = f"the cache returned {pluralize(layer.fed_before, 'token')}, and attention saw "
            says += f"only {name_positions(own)}, just fed"
            return layer.cause("past not appended", says, 0)


def newest_not_seen(layer: LayerEvidence):
    """Left out of the cache, or only of what attention saw? What `update` was given tells.

    Where that wasn't seen, the next step does.
    """
    columns, name = layer.columns, "own key left out"
    if not columns.is_paired or columns.missing != list(range(layer.fed_before, layer.end)):
        return None
    given = getattr(layer.step, "given", {}).get(layer.number)
    later = [step for step in layer.run[layer.index + 1 :] if layer.number in step.layers]
    if given is not None:
        is_dropped = given <= columns.keys.shape[1]
    elif later:
        is_dropped = later[0].keys[layer.number].shape[2] <= columns.keys.shape[1]
    else:  # attention raised at once, with what `append` had returned
        is_dropped = layer.output is None
    if is_dropped:
        name = "new token not appended"
    newest = name_positions(columns.missing)
    says = f"attention did not see the keys and values of {newest}, just fed"
    return layer.cause(name, says, columns.missing[0])


def columns_repeated(layer: LayerEvidence):
    columns = layer.columns
    if not columns.is_paired or not (repeated := columns.repeated):
        return None
    from_cache = layer.held != layer.fed_before or layer.changed_inside is not False
    who = "the cache held" if from_cache else "attention saw"
    says = f"{who} {name_positions(repeated)} more than once"
    if missing := columns.missing:
        says += f", and {name_positions(missing)} not at all"
        return layer.cause("write in the wrong position", says, missing[0])
    says += f": {pluralize(len(columns.found), 'column')}, expected {len(columns.expected)}"
    return layer.cause("written twice", says, repeated[0])


def wrong_order(layer: LayerEvidence):
    columns = layer.columns
    if columns.is_paired and columns.found != columns.expected:
        pairs = zip(columns.found, columns.expected, strict=True)
        i = next(i for i, pair in enumerate(pairs) if pair[0] != pair[1])
        order = list_positions(columns.found)
        says = f"every key is with its own value, but they are in the order {order}"
        return layer.cause("wrong order", says, i)


def unwritten_columns(layer: LayerEvidence):
    """All that was written is there, and columns beside it that are nothing but zeros."""
    columns, expected = layer.columns, len(layer.columns.expected)
    extra = columns.keys.shape[1] - expected
    if extra <= 0 or columns.keys.shape[1] != columns.values.shape[1]:
        return None
    empty = (columns.keys == 0).all(2).all(0) & (columns.values == 0).all(2).all(0)
    if int(empty.sum()) == extra:
        says = f"the cache returned {pluralize(extra + expected, 'column')}, {extra} of them zeros"
        return layer.cause("empty columns", says, int(empty.nonzero()[0]))


def another_layers_columns(layer: LayerEvidence):
    n, step, whole = layer.fed_before, layer.step, layer.reference.whole
    if not n or layer.columns.keys.shape[1] != layer.end:
        return None

    def is_from(other, name, number):
        ours, right = (x.kept[name] for x in (step, whole))
        ours, right = ours[number][layer.sequence], right[other][layer.sequence]
        return bool(match_columns(ours[:, :n], right[:, :n]).diagonal().all())

    own, names = layer.number, ("keys", "values")
    for other in whole.layers:
        taken = [name for name in names if other != own and is_from(other, name, own)]
        if len(taken) == 2:
            every = all(is_from(other, name, each) for name in names for each in step.layers)
            name = "one slot for all layers" if every else "another layer's slot"
            return layer.cause(name, f"layer {own} was given what layer {other} had stored")
        rest = [name for name in names if name not in taken]
        if taken and is_from(own, rest[0], own):
            says = f"layer {own} was given the {taken[0]} of layer {other}, and its own {rest[0]}"
            return layer.cause(f"{taken[0]} of another layer", says)


def other_columns(layer: LayerEvidence):
    columns, n, expected = layer.columns, layer.columns.keys.shape[1], len(layer.columns.expected)
    if n != expected:
        who = "attention saw" if layer.held == layer.fed_before else "the cache held"
        return layer.cause(UNKNOWN, f"{who} {pluralize(n, 'column')}, expected {expected}")
    keys_differ = layer.differs(*columns.pairs[0])
    name, matched = ("key", columns.keys_of) if keys_differ else ("value", columns.values_of)
    position = columns.expected[next((i for i, column in enumerate(matched) if column != i), 0)]
    says = f"the {name} of position {position} differs as attention saw it"
    if layer.changed_inside:
        says = f"the {name} of position {position} came out of the cache other than it went in"
    return layer.cause(UNKNOWN, says, position)


COLUMN_RULES = (
    columns_not_a_number,
    unequal_lengths,
    another_sequences_columns,
    keys_and_values_swapped,
    keys_apart_from_values,
    past_not_appended,
    newest_not_seen,
    moved_but_not_rotated_again,
    columns_missing,
    moved_and_rotated_again,
    columns_repeated,
    wrong_order,
    unwritten_columns,
    key_at_another_position,
    another_layers_columns,
    scale_over_all_tokens,
    lower_precision,
    held_came_back_changed,
    other_columns,
)
