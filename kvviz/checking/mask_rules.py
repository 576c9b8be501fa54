"""The rules that name a mistake in a mask: queries, keys and values are right, the output is not.

So which columns could each row see? A rule names a mask that would give this output, where the
right mask wouldn't: one row alone, which may see everything, has no mask to miss.
"""

from __future__ import annotations

import torch

from kvviz.checking.causes import UNKNOWN
from kvviz.checking.drift_rules import follows_from_columns, held_came_back_changed
from kvviz.checking.evidence import LayerEvidence
from kvviz.words import pluralize


def attention_of_another_kind(layer: LayerEvidence):
    """Attention sinks and the like: our plain attention doesn't give the right output either."""
    if not layer.gives(_ages(layer) >= 0, layer.right_output):
        return other_outputs(layer)


def output_not_a_number(layer: LayerEvidence):
    """Keys, values and queries are numbers: a row that may see no column has no weights."""
    if layer.output.isnan().any():
        position = layer.fed_before + int(layer.output.isnan().amax((0, 2)).nonzero()[0])
        says = f"attention gave the row of position {position} no number"
        return layer.cause("not a number", says, position)


def mask_missing(layer: LayerEvidence):
    if layer.explains(torch.ones_like(_ages(layer), dtype=torch.bool)):
        says = f"{_rows(layer)} could see what comes after"
        return layer.cause("mask missing", says, _only_row(layer))


def mask_looks_ahead(layer: LayerEvidence):
    """Every row sees a fixed number of positions too many; with all of them, no mask at all."""
    for ahead in range(1, layer.step.fed - 1):
        if layer.explains(_ages(layer) >= -ahead):
            says = f"each row could see {pluralize(ahead, 'position')} after its own"
            return layer.cause("mask looks ahead", says, _only_row(layer))


def mask_from_the_top_left(layer: LayerEvidence):
    if layer.explains(_ages(layer) >= layer.fed_before):
        says = f"{_rows(layer)} saw from the first column on, as in a square"
        return layer.cause("mask from the top left", says, _only_row(layer))


def own_key_not_seen(layer: LayerEvidence):
    ages, columns = _ages(layer), layer.seen.positions[None]
    if layer.explains(ages > 0) or layer.explains((columns < layer.fed_before).expand_as(ages)):
        says = f"{_rows(layer)} saw what was held, but not the token just fed"
        return layer.cause("own key left out", says, _only_row(layer))


def first_column_hidden(layer: LayerEvidence):
    """The first position alone. A window hides more in the next step; row 0 may see itself."""
    ages = _ages(layer)
    visible = (ages >= 0) & ((layer.seen.positions > 0) | (ages == 0))
    if layer.explains(visible) and not _window_slides(layer):
        says = "position 0, the first, was masked, although it is held"
        return layer.cause("first column dropped", says, 0)


def mask_with_a_hole(layer: LayerEvidence):
    """One position hidden. In one step that can also be a window: the next step tells."""
    causal, columns = _ages(layer) >= 0, layer.seen.positions
    holes = [p for p in columns.tolist() if layer.explains(causal & (columns != p))]
    if holes and not _window_slides(layer):
        says = f"position {holes[0]} was masked, although it is held"
        return layer.cause("mask with a hole", says, holes[0])


def window(layer: LayerEvidence):
    if width := _window(layer):
        says = f"{_rows(layer)} saw only the last {width} column{'s' * (width > 1)}"
        return layer.cause("window nobody asked for", says, _only_row(layer))


def other_outputs(layer: LayerEvidence):
    says = "queries, keys and values are right, but the output differs"
    if follows_from_columns(layer):
        says = "what attention saw is off by a little, and the output follows from it"
    return layer.cause(UNKNOWN, says, _only_row(layer))


def _ages(layer: LayerEvidence):
    """(rows, columns): how many positions ago each column is, seen from each row."""
    return torch.arange(layer.fed_before, layer.end)[:, None] - layer.seen.positions[None]


def _only_row(layer: LayerEvidence) -> int | None:
    return layer.fed_before if layer.step.fed == 1 else None


def _rows(layer: LayerEvidence) -> str:
    return "the row" if layer.step.fed == 1 else "the rows"


def _window(layer: LayerEvidence) -> int:
    """The width of the window that would give this output; 0 if none would."""
    ages = _ages(layer)
    widths = (w for w in range(1, layer.end) if layer.explains((ages >= 0) & (ages < w)))
    return next(widths, 0)


def _window_slides(layer: LayerEvidence) -> bool:
    """Whether a window gives this output, and in the next step one of the same width."""
    if not (width := _window(layer)):
        return False
    after = layer.next_step()
    return after is None or after.gives(((ages := _ages(after)) >= 0) & (ages < width))


MASK_RULES = (
    output_not_a_number,
    held_came_back_changed,
    attention_of_another_kind,
    mask_missing,
    mask_looks_ahead,
    mask_from_the_top_left,
    own_key_not_seen,
    first_column_hidden,
    mask_with_a_hole,
    window,
    other_outputs,
)
