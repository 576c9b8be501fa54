"""What differs in a learner's step, in words."""

from __future__ import annotations

from kvviz.checking.columns import list_positions
from kvviz.checking.flaws import Flaws
from kvviz.recording.square import Square
from kvviz.tokens import quoted
from kvviz.words import pluralize

MOST_LISTED = 8  # numbers; of more, the first are named


def describe_flaws(flaws: Flaws, ours: Square, right: Square) -> list[str]:
    """The flaws in clauses, such as "the key of ' that' in column 6 is wrong"."""
    other, said = _find_other_token(flaws, ours, right), []
    if other is not None:
        pair = (quoted(square.tokens[other]) for square in (ours, right))
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


def _find_other_token(flaws: Flaws, ours: Square, right: Square) -> int | None:
    """The first column that holds another token than the right one."""
    pairs = enumerate(zip(ours.tokens, right.tokens, strict=False))
    for column, (token, expected) in pairs:
        if token not in (expected, "?") and flaws.get(("keys", column)) == "wrong":
            return column
    return None


def _describe_columns(kind: str, keys: list[int], values: list[int], right: Square) -> list[str]:
    if keys == values:
        return [_tell(kind, ("key and value", "keys and values"), keys, right)]
    return [
        _tell(kind, ("key", "keys"), keys, right),
        _tell(kind, ("value", "values"), values, right),
    ]


def _tell(kind: str, names: tuple[str, str], columns: list[int], right: Square) -> str:
    if not columns:
        return ""
    which = f"column{'s' * (len(columns) > 1)} {_list_numbers(columns)}"
    if len(columns) == 1 and kind != "extra" and columns[0] < len(right.tokens):
        which = f"{quoted(right.tokens[columns[0]])} in {which}"
    several = len(columns) > 1 or " and " in names[0]
    are = "are" if several else "is"
    what = {"wrong": "wrong", "extra": "too many", "missing": "missing"}[kind]
    if kind == "extra" and not several:
        what = "one too many"
    return f"the {names[len(columns) > 1]} of {which} {are} {what}"


def _describe_rows(kind: str, queries: list[int], outputs: list[int]) -> list[str]:
    if kind == "wrong" and queries == outputs:
        return [_tell_rows(("query and output", "queries and outputs"), queries, kind)]
    if kind == "wrong":
        each = ((("query", "queries"), queries), (("output", "outputs"), outputs))
        return [_tell_rows(names, rows, kind) for names, rows in each]
    which = f"row{'s' * (len(queries) > 1)} {_list_numbers(queries)}" if queries else ""
    if kind == "extra":
        return [f"{which} should not be there" if which else ""]
    said = f"{which} {'are' if len(queries) > 1 else 'is'} missing" if which else ""
    return [said, _tell_rows(("output", "outputs"), sorted({*outputs} - {*queries}), kind)]


def _tell_rows(names: tuple[str, str], rows: list[int], kind: str) -> str:
    if not rows:
        return ""
    several = len(rows) > 1
    are = "are" if several or " and " in names[0] else "is"
    return f"the {names[several]} of row{'s' * several} {_list_numbers(rows)} {are} {kind}"


def _describe_cells(flaws: Flaws, ours: Square) -> list[str]:
    cells = [place for role, place in flaws if role == "attention"]
    if not cells:
        return []
    seen = [not ours.masked[ours.row_positions.index(row), column] for row, column in cells]
    n_seen, n_hidden = sum(seen), len(seen) - sum(seen)
    said = []
    if n_seen:
        said.append(f"{pluralize(n_seen, 'cell')} that should be masked can be seen")
    if n_hidden:
        are = "is" if n_hidden == 1 else "are"
        said.append(f"{pluralize(n_hidden, 'cell')} that should be seen {are} masked")
    return said


def _list_numbers(numbers: list[int]) -> str:
    """6, or 6 to 12, or 4 and 5, or 1, 3 and 4."""
    first, last = numbers[0], numbers[-1]
    if len(numbers) > 2 and numbers == list(range(first, last + 1)):
        return f"{first} to {last}"
    if len(numbers) > MOST_LISTED:
        return list_positions(numbers)
    before = ", ".join(map(str, numbers[:-1]))
    return f"{before} and {last}" if before else str(last)


def count_square(square: Square) -> str:
    """Its columns and rows: "7 columns, 1 row"."""
    n_keys, n_values = (
        sum(state not in ("empty", "dropped") for state in square.states_of(role))
        for role in ("keys", "values")
    )
    columns = pluralize(n_keys, "column")
    if n_keys != n_values:
        columns = f"{pluralize(n_keys, 'key')} and {pluralize(n_values, 'value')}"
    return f"{columns}, {pluralize(len(square.row_positions), 'row')}"
