"""The rules that name a mistake in rotation: a query, or a key, at another position than its own.

Two things tell the causes apart: whether the new key went wrong with the query, and, in a traced
forge, what `positions` returned.
"""

from __future__ import annotations

from kvviz.checking.causes import UNKNOWN
from kvviz.checking.columns import match_columns
from kvviz.checking.contract import return_problem
from kvviz.checking.drift_rules import held_came_back_changed
from kvviz.checking.evidence import LayerEvidence
from kvviz.words import pluralize


def query_not_a_number(layer: LayerEvidence):
    """NaN comes first: nothing else can be read from such numbers."""
    if layer.query.shape == layer.right_query.shape and layer.query.isnan().any():
        position = layer.fed_before + int(layer.query.isnan().amax((0, 2)).nonzero()[0])
        says = f"the query of position {position} is not a number"
        return layer.cause("not a number", says, position)


def positions_misused(layer: LayerEvidence):
    """`positions` was told another number of tokens than was fed, or returned another shape.

    Read from the call itself; one that is fed in parts is right as long as each part is.
    """
    told, t = (getattr(layer.step, name, None) for name in ("positions", "t"))
    if told is None:
        return None
    if problem := return_problem("positions", told):
        return layer.cause(problem[0], problem[1])
    if t != layer.step.fed and len(told) == t:
        fed = pluralize(layer.step.fed, "token")
        verb = "was" if layer.step.fed == 1 else "were"
        return layer.cause("tokens miscounted", f"`positions` got t={t}, but {fed} {verb} fed")


def query_at_another_position(layer: LayerEvidence):
    true = list(range(layer.fed_before, layer.end))
    given = layer.find_rotation(layer.query, layer.right_query, true)
    if given is None or given == true:  # near its own position, and off by a little
        return None
    name = _name_of_both(layer, given, true) if _key_went_too(layer, given) else None
    if name is None:  # the query alone, or the key went elsewhere
        name = _name_of_one(layer, given, true)
    ours, right = next(pair for pair in zip(given, true, strict=True) if pair[0] != pair[1])
    what = "token" if name in _OF_BOTH else "query"
    says = f"the {what} at position {right} was rotated as if it were at position {ours}"
    if name == "query not rotated":
        says = f"the query at position {right} was not rotated, and its key was"
    return layer.cause(name, says, right)


_OF_BOTH = (
    "position miscounted",
    "position restarts",
    "position counted twice",
    "counter left behind",
    "rotation skipped",
    "rotated backwards",
)


def _key_went_too(layer: LayerEvidence, given) -> bool:
    """Whether the new keys were rotated for the same positions as the queries."""
    new, true = layer.entry("news"), list(range(layer.fed_before, layer.end))
    keys = layer.seen.keys[:, -len(true) :] if new is None else new[0]
    right = layer.seen.right_keys[:, layer.fed_before : layer.end]
    return layer.find_rotation(keys, right, true) == given


def _name_of_both(layer: LayerEvidence, given, true) -> str | None:
    """Query and key agree: either the positions are wrong, or what was done with them."""
    told = getattr(layer.step, "positions", None)
    if told is not None:
        told = told.flatten().tolist()
        told = told * len(given) if len(told) == 1 else told
        if told == true:  # positions were right, the rotation was not
            if not any(given):
                return "rotation skipped"
            return "rotated backwards" if given == [-p for p in true] else UNKNOWN
        if told != given:
            return UNKNOWN
    elif not any(given) and len(given) == 1:  # not rotated, or at position 0?
        return UNKNOWN
    shifts = {ours - right for ours, right in zip(given, true, strict=True)}
    if given == list(range(len(given))):
        return "position restarts"
    if shifts == {1} and layer.fed_before:
        return "position counted twice"
    if shifts == {layer.n_earlier} and not layer.fed_before:
        return "counter left behind"
    return "position miscounted"


def _name_of_one(layer: LayerEvidence, given, true) -> str:
    if layer.entry("news") is None:  # nothing is known of the key
        return UNKNOWN
    if not any(given):
        return "query not rotated"
    if given == [-p for p in true]:
        return "query rotated backwards"
    return "query at another position"


def other_queries(layer: LayerEvidence):
    n = layer.right_query.shape[1]
    if layer.query.shape != layer.right_query.shape:
        came, expected = tuple(layer.query.shape), tuple(layer.right_query.shape)
        return layer.cause(UNKNOWN, f"the queries have shape {came}, expected {expected}")
    off = (layer.query - layer.right_query).abs().amax((0, 2)) / layer.right_query.abs().max()
    position = layer.fed_before + min(int((~(off <= layer.gate)).nonzero()[0]), n)
    return layer.cause(UNKNOWN, "the queries differ", position)


def key_at_another_position(layer: LayerEvidence):
    """The queries and values are right, and keys were rotated for another position."""
    columns = layer.columns
    off = (~match_columns(*columns.pairs[0]).diagonal()).nonzero()[:, 0].tolist()
    if not off or columns.values_of != list(range(columns.right_keys.shape[1])):
        return None
    given = layer.find_rotation(columns.keys[:, off], columns.right_keys[:, off], off)
    if given is None or given == off:
        return None
    says = f"the key of position {off[0]} was rotated as if it were at position {given[0]}"
    return layer.cause(_name_key(layer, given, off), says, off[0])


def _name_key(layer: LayerEvidence, given, off) -> str:
    if not any(given):
        return "key at position 0"
    if given == [2 * p for p in off] and off[-1] < layer.fed_before:
        return "keys rotated twice"
    return "key rotated backwards" if given == [-p for p in off] else "key at another position"


QUERY_RULES = (
    query_not_a_number,
    positions_misused,
    query_at_another_position,
    held_came_back_changed,
    other_queries,
)
