"""The rules that name a mistake in a cache by what attention saw in one layer of one step.

Each looks at the evidence and returns a cause or None. The table at the end says which are tried,
by what differs first.
"""

from __future__ import annotations

import torch

from kvviz.checking.causes import UNKNOWN, Cause, first_cause
from kvviz.checking.columns import find_precision, list_positions, match_columns, name_positions
from kvviz.checking.compare import Reference
from kvviz.checking.evidence import LayerEvidence
from kvviz.checking.mask_rules import MASK_RULES


def find_cause(run, reference: Reference, *, rotate=None, n_earlier: int = 0) -> Cause | None:
    """The first difference in a recording, with the mistake that would leave it; None if none.

    A difference far above rounding anywhere comes before a small one.

    Args:
        run: steps that kept `SEEN`, in the order of the text.
        rotate, n_earlier: as in `LayerEvidence`.
    """
    for gate in (10 * reference.gate, reference.gate):
        for evidence in _layers(run, reference, gate, rotate, n_earlier):
            if difference := evidence.first_difference:
                return first_cause(RULES[difference], evidence)
    return None


def _layers(run, reference, gate, rotate, n_earlier):
    """Every layer of every step, as long as the text is the right one."""
    fed_before, text = 0, reference.whole.token_ids[0]
    for index, step in enumerate(run):
        if not torch.equal(step.token_ids[0], text[fed_before : fed_before + step.fed]):
            return
        for layer in step.layers:
            yield LayerEvidence(run, index, layer, fed_before, reference, gate, rotate, n_earlier)
        fed_before += step.fed


# -- before anything is compared -------------------------------------------------------------------


def stale_cache(layer: LayerEvidence):
    says = f"the cache held {layer.held} tokens before the first was fed"
    return layer.cause("stale cache", says)


def other_rows(layer: LayerEvidence):
    """More rows than were fed: the whole text again, or something else."""
    n = layer.query.shape[1]
    text = layer.reference.whole.queries[layer.number][0][:, : layer.end]
    name = UNKNOWN if layer.differs(layer.query, text) else "cache never read"
    says = f"{n} row{'s were' if n > 1 else ' was'} computed for {layer.step.fed} fed"
    return layer.cause(name, says)


# -- queries ---------------------------------------------------------------------------------------


def query_at_another_position(layer: LayerEvidence):
    true = list(range(layer.fed_before, layer.end))
    given = layer.find_rotation(layer.query, layer.right_query, true)
    if given is None:
        return None
    shifts = {ours - right for ours, right in zip(given, true, strict=True)}
    name = "position miscounted"
    if given == list(range(len(given))):
        name = "position restarts"
    elif shifts == {1} and layer.fed_before:
        name = "position counted twice"
    elif shifts == {layer.n_earlier} and not layer.fed_before:
        name = "counter left behind"
    ours, right = next(pair for pair in zip(given, true, strict=True) if pair[0] != pair[1])
    says = f"the token at position {right} was rotated as if it were at position {ours}"
    return layer.cause(name, says, right)


def other_queries(layer: LayerEvidence):
    off = (layer.query - layer.right_query).abs().amax((0, 2)) / layer.right_query.abs().max()
    position = layer.fed_before + int((~(off <= layer.gate)).nonzero()[0])
    return layer.cause(UNKNOWN, "the queries differ", position)


# -- columns: what the cache held, and attention saw -----------------------------------------------


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


def newest_not_seen(layer: LayerEvidence):
    """Left out of the cache, or only of what attention saw? The next step tells."""
    columns, name = layer.columns, "own key left out"
    if not columns.is_paired or columns.missing != list(range(layer.fed_before, layer.end)):
        return None
    later = layer.run[layer.step.index + 1 :]
    if later and later[0].keys[layer.number].shape[2] <= columns.keys.shape[1]:
        name = "new token not appended"
    newest = name_positions(columns.missing)
    says = f"attention did not see the keys and values of {newest}, just fed"
    return layer.cause(name, says, columns.missing[0])


def columns_missing(layer: LayerEvidence):
    columns, n = layer.columns, layer.fed_before
    if not columns.is_paired or not columns.missing or columns.repeated:
        return None
    missing, name = columns.missing, "write missing"
    if missing == list(range(len(missing))) and len(missing) < n:
        name = "window nobody asked for"
    elif missing == list(range(n)):
        later = layer.run[layer.step.index :]
        never = not any(step.before.get(layer.number) for step in later)
        name = "write never happens" if never else name
    says = f"the cache did not hold {name_positions(missing)} of the {n} fed before"
    return layer.cause(name, says, missing[0])


def columns_repeated(layer: LayerEvidence):
    columns = layer.columns
    if not columns.is_paired or not (repeated := columns.repeated):
        return None
    says = f"the cache held {name_positions(repeated)} more than once"
    if missing := columns.missing:
        says += f", and {name_positions(missing)} not at all"
        return layer.cause("write in the wrong position", says, missing[0])
    says += f": {len(columns.found)} columns, expected {len(columns.expected)}"
    return layer.cause("written twice", says, repeated[0])


def wrong_order(layer: LayerEvidence):
    columns = layer.columns
    if columns.is_paired and columns.found != columns.expected:
        pairs = zip(columns.found, columns.expected, strict=True)
        i = next(i for i, pair in enumerate(pairs) if pair[0] != pair[1])
        order = list_positions(columns.found)
        says = f"every key is with its own value, but they are in the order {order}"
        return layer.cause("wrong order", says, i)


def key_at_another_position(layer: LayerEvidence):
    """The values are right, and keys were rotated for another position."""
    columns = layer.columns
    off = (~match_columns(*columns.pairs[0]).diagonal()).nonzero()[:, 0].tolist()
    if not off or columns.values_of != list(range(columns.right_keys.shape[1])):
        return None
    given = layer.find_rotation(columns.keys[:, off], columns.right_keys[:, off], off)
    if given is None:
        return None
    name = "keys rotated twice" if off[-1] < layer.fed_before else "position miscounted"
    name = name if any(given) else "key at position 0"
    says = f"the key of position {off[0]} was rotated as if it were at position {given[0]}"
    return layer.cause(name, says, off[0])


def another_layers_columns(layer: LayerEvidence):
    n, step, whole = layer.fed_before, layer.step, layer.reference.whole
    if not n or layer.columns.keys.shape[1] != layer.end:
        return None

    def has_columns_of(number, other):
        ours, theirs = step.keys[number][0], whole.keys[other][0]
        return bool(match_columns(ours[:, :n], theirs[:, :n]).diagonal().all())

    for other in whole.layers:
        if other != layer.number and has_columns_of(layer.number, other):
            every = all(has_columns_of(number, other) for number in step.layers)
            name = "one slot for all layers" if every else "another layer's slot"
            says = f"layer {layer.number} was given what layer {other} had stored"
            return layer.cause(name, says)


def lower_precision(layer: LayerEvidence):
    """What was held is close to right, and uses fewer bits than it was given."""
    n = layer.fed_before
    if not n or layer.columns.keys.shape[1] != layer.end:
        return None
    for ours, right in layer.columns.pairs:
        ours, right = ours[:, :n], right[:, :n]
        is_close = (ours - right).norm() <= 0.2 * right.norm()
        if layer.differs(ours, right) and is_close and (kept := find_precision(ours)):
            gap = float((ours - right).abs().max() / right.abs().max())
            says = f"what was held came back {kept}, off by up to {gap:.0e} of the largest number"
            return layer.cause("precision", says)


def other_columns(layer: LayerEvidence):
    columns, n, expected = layer.columns, layer.columns.keys.shape[1], len(layer.columns.expected)
    if n != expected:
        who = "attention saw" if layer.held == layer.fed_before else "the cache held"
        return layer.cause(UNKNOWN, f"{who} {n} columns, expected {expected}")
    keys_differ = layer.differs(*columns.pairs[0])
    name, matched = ("key", columns.keys_of) if keys_differ else ("value", columns.values_of)
    position = columns.expected[next((i for i, column in enumerate(matched) if column != i), 0)]
    says = f"the {name} of position {position} differs as attention saw it"
    return layer.cause(UNKNOWN, says, position)


# -- the order in which the rules are tried --------------------------------------------------------

COLUMN_RULES = (
    keys_and_values_swapped,
    keys_apart_from_values,
    newest_not_seen,
    columns_missing,
    columns_repeated,
    wrong_order,
    key_at_another_position,
    another_layers_columns,
    lower_precision,
    other_columns,
)

RULES = {  # what differs first -> the rules to try
    "start": (stale_cache,),
    "rows": (other_rows,),
    "held": COLUMN_RULES,
    "queries": (query_at_another_position, other_queries),
    "columns": COLUMN_RULES,
    "outputs": MASK_RULES,
}
