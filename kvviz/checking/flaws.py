"""What differs in a learner's step: cells that are wrong, too many, or missing; and in words."""

from __future__ import annotations

import torch

from kvviz.checking.columns import list_positions
from kvviz.checking.seen import Seen, choose_head
from kvviz.tokens import quoted
from kvviz.words import pluralize

Flaws = dict[tuple, str]  # (role, place) -> "wrong", "extra" or "missing"; see drawing.flaws.Side


def find_flaws(ours: Seen, right: Seen, gate: float) -> Flaws:
    """Every cell of a step that differs from the right one by more than `gate`."""
    return find_edge_flaws(ours, right, gate) | _find_cell_flaws(ours, right)


def find_edge_flaws(ours: Seen, right: Seen, gate: float) -> Flaws:
    """Those of keys, values, queries and outputs: attention isn't computed for these."""
    flaws = {}
    for role in ("keys", "values"):
        x, y = getattr(ours, role), getattr(right, role)
        places = ours.columns[: x.shape[1]]
        flaws |= _compare(role, (x, places), (y, right.columns), gate)
        end = ours.blank.n_columns  # before it, what is not there has left a window
        if x.shape[1] < len(ours.columns):
            end = max(places, default=-1) + 1
        gone = set(right.columns) - set(places)
        flaws |= {(role, place): "missing" for place in sorted(gone) if place >= end}
    for role in ("queries", "outputs"):
        x, y = (seen.query if role == "queries" else seen.output for seen in (ours, right))
        flaws |= _compare(role, (x, ours.rows), (y, right.rows), gate)
        gone = sorted(set(right.rows) - set(ours.rows))
        flaws |= {(role, place): "missing" for place in gone}
    return flaws


def _compare(role: str, ours: tuple, right: tuple, gate: float) -> Flaws:
    """Tensors (heads, places, numbers) with their places; those of `right` are expected."""
    (x, places), (y, expected) = ours, right
    at, flaws = {place: i for i, place in enumerate(expected)}, {}
    scale = 0.0 if y is None else y.abs().max()
    for i, place in enumerate(places):
        if place not in at:
            flaws[role, place] = "extra"
        elif x is not None and y is not None and _differs(x[:, i], y[:, at[place]], gate * scale):
            flaws[role, place] = "wrong"
    return flaws


def _differs(x, y, most) -> bool:
    return x.shape != y.shape or not (x - y).abs().max() <= most


def _find_cell_flaws(ours: Seen, right: Seen) -> Flaws:
    """Cells that a row can see and shouldn't, or should and can't; of rows that both have."""
    if ours.attention is None or right.attention is None:
        return {}
    at_row = {row: i for i, row in enumerate(right.rows)}
    at_column = {column: j for j, column in enumerate(right.columns)}
    flaws = {}
    for i, row in enumerate(ours.rows):
        for j, column in enumerate(ours.columns):
            if row in at_row and column in at_column:
                expected = right.attention[1][at_row[row], at_column[column]]
                if ours.attention[1][i, j] != expected:
                    flaws["attention", (row, column)] = "wrong"
    return flaws


def choose_wrong_head(ours: Seen, right: Seen, gate: float) -> int:
    """The head that shows the mistake best: of the key/value heads that differ, if some do, the
    one whose newest row attends most differently."""
    pairs, size = (ours.attention, right.attention), right.query.shape[0]
    shared_rows = [row for row in ours.rows if row in right.rows]
    if None in pairs or ours.query.shape[0] != size or not shared_rows:
        return choose_head(right)
    row, n = shared_rows[-1], min(len(ours.columns), len(right.columns))
    one, other = (seen.attention[0][:, seen.rows.index(row), :n] for seen in (ours, right))
    moved = (100 * (one - other).abs().amax(-1)).round()
    shared_by = size // right.keys.shape[0]
    differs = torch.zeros(right.keys.shape[0], dtype=torch.bool)
    for name in ("keys", "values"):
        x, y = (getattr(seen, name)[:, :n] for seen in (ours, right))
        if x.shape == y.shape:
            differs |= ~((x - y).abs().amax((1, 2)) <= gate * y.abs().max())
    if differs.any():
        moved = moved.masked_fill(~differs.repeat_interleave(shared_by), -1)
    return int(moved.argmax()) if moved.max() > 0 else choose_head(right)


# -- in words ------------------------------------------------------------------------------------


def describe_flaws(flaws: Flaws, ours: Seen, right: Seen) -> list[str]:
    """The flaws in clauses, such as "the key of ' that' in column 6 is wrong"."""
    other, said = _find_other_token(flaws, ours, right), []
    if other is not None:
        pair = (quoted(seen.blank.tokens[other]) for seen in (ours, right))
        said.append("column {} holds {}, expected {}".format(other, *pair))
    for kind in ("wrong", "extra", "missing"):
        found = {role: _list_places(flaws, role, kind) for role in _ROLES}
        if not (kind == "wrong" and found["keys"] == found["values"] == [other]):  # said already
            said += _describe_columns(kind, found["keys"], found["values"], right)
        said += _describe_rows(kind, found["queries"], found["outputs"])
    return [*filter(None, said), *_describe_cells(flaws, ours)]


_ROLES = ("keys", "values", "queries", "outputs")


def _list_places(flaws: Flaws, role: str, kind: str) -> list[int]:
    return sorted(place for (each, place), what in flaws.items() if (each, what) == (role, kind))


def _find_other_token(flaws: Flaws, ours: Seen, right: Seen) -> int | None:
    """The first column that holds another token than the right one."""
    pairs = enumerate(zip(ours.blank.tokens, right.blank.tokens, strict=False))
    for column, (token, expected) in pairs:
        if token not in (expected, "?") and flaws.get(("keys", column)) == "wrong":
            return column
    return None


def _describe_columns(kind: str, keys: list[int], values: list[int], right: Seen) -> list[str]:
    if keys == values:
        return [_tell(kind, ("key and value", "keys and values"), keys, right)]
    return [
        _tell(kind, ("key", "keys"), keys, right),
        _tell(kind, ("value", "values"), values, right),
    ]


def _tell(kind: str, names: tuple[str, str], columns: list[int], right: Seen) -> str:
    if not columns:
        return ""
    which = f"column{'s' * (len(columns) > 1)} {_list_numbers(columns)}"
    if len(columns) == 1 and kind != "extra" and columns[0] < len(right.blank.tokens):
        which = f"{quoted(right.blank.tokens[columns[0]])} in {which}"
    several = len(columns) > 1 or " and " in names[0]
    are = "are" if several else "is"
    what = {"wrong": "wrong", "extra": "too many", "missing": "missing"}[kind]
    if kind == "extra" and not several:
        what = "one too many"
    return f"the {names[len(columns) > 1]} of {which} {are} {what}"


def _describe_rows(kind: str, queries: list[int], outputs: list[int]) -> list[str]:
    if kind == "wrong":
        if queries == outputs:
            return [_tell_rows(("query and output", "queries and outputs"), queries)]
        return [
            _tell_rows(("query", "queries"), queries),
            _tell_rows(("output", "outputs"), outputs),
        ]
    if not queries:
        return []
    end = "missing" if kind == "missing" else "should not be there"
    if kind == "extra":
        return [f"row{'s' * (len(queries) > 1)} {_list_numbers(queries)} {end}"]
    are = "are" if len(queries) > 1 else "is"
    return [f"row{'s' * (len(queries) > 1)} {_list_numbers(queries)} {are} {end}"]


def _tell_rows(names: tuple[str, str], rows: list[int]) -> str:
    if not rows:
        return ""
    several = len(rows) > 1
    are = "are" if several or " and " in names[0] else "is"
    return f"the {names[several]} of row{'s' * several} {_list_numbers(rows)} {are} wrong"


def _describe_cells(flaws: Flaws, ours: Seen) -> list[str]:
    cells = [place for role, place in flaws if role == "attention"]
    if not cells:
        return []
    visible = ours.attention[1]
    seen = [
        bool(visible[ours.rows.index(row), ours.columns.index(column)]) for row, column in cells
    ]
    n_seen, n_hidden = sum(seen), len(seen) - sum(seen)
    said = []
    if n_seen:
        said.append(f"{pluralize(n_seen, 'cell')} that should be masked can be seen")
    if n_hidden:
        are = "is" if n_hidden == 1 else "are"
        said.append(f"{pluralize(n_hidden, 'cell')} that should be seen {are} masked")
    return said


def _list_numbers(numbers: list[int]) -> str:
    """6, or 6 to 12, or 1, 3, 4."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and numbers == list(range(first, last + 1)):
        return f"{first} to {last}"
    return list_positions(numbers)
