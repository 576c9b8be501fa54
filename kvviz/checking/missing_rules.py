"""The rules that name what is gone from the columns: dropped on purpose, never written, or moved.

What the next step holds tells a window, which goes on dropping, from a token that was lost once.
What the new queries were rotated for tells whether what is left was renumbered.
"""

from __future__ import annotations

from dataclasses import replace

from kvviz.checking.causes import Cause
from kvviz.checking.columns import name_positions
from kvviz.checking.evidence import LayerEvidence
from kvviz.words import pluralize


def moved_but_not_rotated_again(layer: LayerEvidence):
    """The queries count on from what is held; keys that moved to lower columns are as they were."""
    columns = layer.columns
    if not columns.is_paired or not _has_moved(columns.found, layer):
        return None
    if _find_query_positions(layer) != _count_on(layer):
        return None
    first, held = layer.fed_before, name_positions(columns.found)
    says = f"the cache held {held} of the {first} fed before, their keys rotated for those, but "
    says += f"the query of position {first} was rotated for position {layer.held}"
    return layer.cause("moved but not rotated again", says, first)


def moved_and_rotated_again(layer: LayerEvidence):
    """Keys that moved to lower columns were rotated for these, and so were the queries."""
    columns, n = layer.columns, layer.columns.keys.shape[1]
    if columns.values.shape[1] != n or -1 in columns.values_of:
        return None
    found = columns.positions[columns.values_of].tolist()
    if not _has_moved(found, layer) or _find_query_positions(layer) != _count_on(layer):
        return None
    rights = columns.right_keys[:, columns.values_of]
    if layer.find_rotation(columns.keys, rights, found) != list(range(n)):
        return None
    missing = sorted(set(columns.expected) - set(found))
    says = f"the cache did not hold {name_positions(missing)} of the {layer.fed_before} fed before"
    cause = layer.cause(_name_gone(layer, missing), says, missing[0])
    remark = f"{name_positions(found)} became {name_positions(list(range(n)))}, and all that is "
    remark += "left was rotated for that: the distances are right"
    return replace(cause, remark=remark)


def _has_moved(found: list[int], layer: LayerEvidence) -> bool:
    """Whether some of these positions stand in lower columns than they were rotated for, in order,
    because others are gone."""
    in_order = all(one < other for one, other in zip(found, found[1:], strict=False))
    return layer.held < layer.fed_before and in_order and found != list(range(len(found)))


def _find_query_positions(layer: LayerEvidence) -> list[int] | None:
    """The positions that the new queries were rotated for; None if they fit none."""
    true = list(range(layer.fed_before, layer.end))
    return layer.find_rotation(layer.query, layer.right_query, true)


def _count_on(layer: LayerEvidence) -> list[int]:
    """The new tokens' positions, if they count on from what is held."""
    return list(range(layer.held, layer.held + layer.step.fed))


def columns_missing(layer: LayerEvidence) -> Cause | None:
    """Some positions are gone; what is left stands where it should, or the queries don't move."""
    columns, n = layer.columns, layer.fed_before
    if not columns.is_paired or not columns.missing or columns.repeated:
        return None
    missing = columns.missing
    if missing == list(range(n)):
        return _all_missing(layer)
    what, name = name_positions(missing), _name_gone(layer, missing)
    says = f"the cache did not hold {what} of the {n} fed before"
    if len(columns.expected) > n and name == "write missing":  # the cache had it, attention not
        says = f"the cache returned {pluralize(n, 'token')}, and attention did not see {what} of "
        says += "them"
        name = "past not appended" if layer.entry("pasts") else name
    cause = layer.cause(name, says, missing[0])
    newest = layer.end - 1
    is_right = layer.held < n and (_find_query_positions(layer) or [])[-1:] == [newest]
    remark = f"positions are right: the newest token was rotated for position {newest}"
    return replace(cause, remark=remark) if is_right else cause


def _all_missing(layer: LayerEvidence) -> Cause:
    n, name = layer.fed_before, "write missing"
    says = f"the cache held nothing of the {n} fed before"
    if not getattr(layer.step, "was_read", True):
        says = "forward never called `get` of the cache it was given"
        name = "cache not used"
    elif _never_held(layer, layer.step.layers):
        name = "write never happens"
    elif _never_held(layer, [layer.number]):
        says = f"this layer held nothing of the {n} fed before, and others did"
    elif len(layer.columns.expected) > n:
        says = f"the cache returned {pluralize(n, 'token')}, and attention did not see "
        says += f"{name_positions(layer.columns.missing)} of them"
        name = "past not appended" if layer.entry("pasts") else name
    return layer.cause(name, says, 0)


def _name_gone(layer: LayerEvidence, missing: list[int]) -> str:
    """What the positions that are gone tell: a window, the first column, or no more than that.

    A window may spare some of the first columns, but never drops the newest ones.
    """
    is_one_piece = missing == list(range(missing[0], missing[-1] + 1))
    if is_one_piece and missing[-1] < layer.fed_before - 1 and _slides(layer):
        return "window nobody asked for"
    return "first column dropped" if missing == [0] and layer.fed_before > 1 else "write missing"


def _never_held(layer: LayerEvidence, layers) -> bool:
    """Whether in no step at all one of these layers held anything."""
    return not any(step.before.get(number) for step in layer.run for number in layers)


def _slides(layer: LayerEvidence) -> bool:
    """Whether the next step has lost more of the oldest tokens; false if there is none."""
    n = layer.columns.keys.shape[1]
    later = [step for step in layer.run[layer.index + 1 :] if layer.number in step.layers]
    seen = layer.held == layer.fed_before
    if not later:
        return False
    number, after = layer.number, later[0]
    return (after.keys[number].shape[2] if seen else after.before.get(number, 0)) <= n
