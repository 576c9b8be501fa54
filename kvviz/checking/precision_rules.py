"""The rules that name what was held in fewer bits than it was given: how many, and which scale.

A scale is found in the numbers: divided by the largest of those that share it, all are whole.
"""

from __future__ import annotations

from kvviz.checking.columns import ALL_TOKENS, find_precision, find_scale
from kvviz.checking.drift_rules import LEAST
from kvviz.checking.evidence import LayerEvidence


def scale_over_all_tokens(layer: LayerEvidence):
    """Values share a scale with those of other tokens, and a later token moves it.

    So what was held is rounded once more. Where no later token does, or where only keys share a
    scale, which can be a good choice, it's no more than precision.
    """
    rounded = _find_rounded(layer)
    scale = find_scale(layer.seen.values[:, : layer.fed_before]) if "values" in rounded else None
    if scale is None or scale.shared != ALL_TOKENS:
        return None
    held = dict(_walk_held(layer, "values"))
    for index in held:
        if index + 1 in held and _was_rounded_again(held[index], held[index + 1]):
            says = f"{_name_rounded(rounded)}: step {index} moved a scale, so the tokens held were "
            return layer.cause("scale along the wrong axis", f"{says}rounded again")


def _walk_held(layer: LayerEvidence, name: str):
    """(index, what was held and seen) of this step and those after it, (heads, columns, D)."""
    n = layer.fed_before
    for index, step in enumerate(layer.run[layer.index :], layer.index):
        x = step.kept[name].get(layer.number)
        if x is None or x.shape[2] != n + step.fed:
            return
        yield index, x[layer.sequence][:, :n]
        n += step.fed


def _was_rounded_again(before, after) -> bool:
    """Whether the same tokens came back with other numbers, whole for another scale."""
    same = after[:, : before.shape[1]]
    scale = find_scale(after)
    has_moved = (same - before).abs().max() > LEAST * before.abs().max()
    return bool(has_moved) and scale is not None and scale.shared == ALL_TOKENS


def lower_precision(layer: LayerEvidence):
    """What was held is close to right, and uses fewer bits than it was given."""
    if rounded := _find_rounded(layer):
        gap = max(gap for _, gap in rounded.values())
        off = f"off by up to {gap:.0e} of the largest number"
        return layer.cause("precision", f"{_name_rounded(rounded)}, {off}")


def _find_rounded(layer: LayerEvidence) -> dict[str, tuple[str, float]]:
    """What the keys and the values that were held were rounded to, and the largest gap, by name."""
    n, found = layer.fed_before, {}
    if not n or layer.columns.keys.shape[1] != layer.end:
        return found
    for name, (ours, right) in zip(("keys", "values"), layer.columns.pairs, strict=True):
        ours, right = ours[:, :n], right[:, :n]
        is_close = (ours - right).norm() <= 0.2 * right.norm()
        if layer.differs(ours, right) and is_close and (kept := find_precision(ours)):
            found[name] = kept, float((ours - right).abs().max() / right.abs().max())
    return found


def _name_rounded(rounded: dict[str, tuple[str, float]]) -> str:
    kinds = {name: kept for name, (kept, _) in rounded.items()}
    if len(kinds) == 2 and len({*kinds.values()}) == 1:
        return f"what was held came back rounded to {kinds['keys']}"
    each = " and ".join(f"the {name} to {kept}" for name, kept in kinds.items())
    return f"what was held came back rounded, {each}"
