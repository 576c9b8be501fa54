"""The rules that name a mistake in the pages of a cache that says how large they are."""

from __future__ import annotations

from kvviz.checking.evidence import LayerEvidence


def find_page_size(cache) -> int | None:
    """The `page_size` of a cache, or of its `pool`; None if it has none."""
    sizes = (getattr(each, "page_size", None) for each in (cache, getattr(cache, "pool", None)))
    return next((size for size in sizes if type(size) is int and size > 0), None)


def page_table_off_by_one(layer: LayerEvidence):
    """The first token of a page is taken for one of the page before it, or that one for it.

    A page that is in the table twice begins alike, with the first token of a page. So the last
    step is asked, and must hold more than that token, or several pages.
    """
    size, last = getattr(layer.step, "page_size", None), _go_to_last(layer)
    moved = _list_moved(last) if size else []
    if not moved or (len(moved) == 1 and moved[0][1] == last.held - 1):
        return None
    if all(column % size == 0 and abs(token - column) == size for column, token in moved):
        column, token = moved[0]
        where = "further on" if token > column else "back"
        says = f"column {column} holds position {token}, a page of {size} {where}"
        return layer.cause("page table off by one", says, column)


def page_in_the_table_twice(layer: LayerEvidence):
    """Tokens lie over others in the same cells of another page: it was free, and still listed."""
    size = getattr(layer.step, "page_size", None)
    moved = _list_moved(_go_to_last(layer)) if size else []
    if len(moved) > 1 and all(token > i and (token - i) % size == 0 for i, token in moved):
        (column, token), *_ = moved
        says = f"position {token} was written over position {column}: one page, listed twice"
        return layer.cause("freed page still read", says, column)


def _go_to_last(layer: LayerEvidence) -> LayerEvidence:
    while (later := layer.next_step()) is not None:
        layer = later
    return layer


def _list_moved(layer: LayerEvidence) -> list[tuple[int, int]]:
    """(column, the token it holds) of each column that isn't its own, and is another's."""
    columns = layer.past
    if columns.keys_of != columns.values_of or len(columns.keys_of) != len(columns.expected):
        return []
    pairs = enumerate(columns.keys_of)  # -1: never written
    return [(i, token) for i, token in pairs if token not in (i, -1)]
