"""The rule that names a wrong page: a page's first token went to the page before it."""

from __future__ import annotations

from kvviz.checking.columns import list_positions
from kvviz.checking.evidence import LayerEvidence


def page_table_off_by_one(layer: LayerEvidence):
    """Each page's first token lies where the page before it begins, and nothing else is wrong.

    One such token alone could be any write that hit the first column: it takes two to see that
    they're a page apart.
    """
    if not _list_moved(layer):
        return None
    last = layer
    while (later := last.next_step()) is not None:
        last = later
    moved = _list_moved(last)
    size = moved[0][1] if moved and moved[0][0] == 0 else 0
    firsts = [(end - size, end) for end in range(size, last.held, size or 1)] if size else []
    if size < 2 or len(firsts) < 2 or moved != firsts:
        return None
    tokens = list_positions([token for _, token in moved])
    says = f"positions {tokens} are where those {size} before them belong, and no others are wrong"
    return layer.cause("page table off by one", says, 0)


def _list_moved(layer: LayerEvidence) -> list[tuple[int, int]]:
    """(column, the later token it holds) of each column of the past that isn't its own."""
    columns = layer.past
    if not columns.is_paired or len(columns.found) != len(columns.expected):
        return []
    pairs = enumerate(columns.found)
    moved = [(i, found) for i, found in pairs if found != columns.expected[i]]
    return moved if all(found > i for i, found in moved) else []
