"""What `draw_numbers` shows: one head's keys, values, queries or outputs, read from a recording."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from kvviz import tokens
from kvviz.arguments import check_whole, describe
from kvviz.recording.square import WRITTEN, Square
from kvviz.words import pluralize

KINDS = {"keys": "key", "values": "value", "queries": "query", "outputs": "output"}
WIDEST = 96  # columns; beyond that, only the newest are drawn
SAME = 1e-3  # of the largest number: numbers closer than that are the same but for rounding


@dataclass(frozen=True)
class Numbers:
    """The numbers (width, n) of n tokens, a column for each.

    Attributes:
        kind: "keys", "values", "queries" or "outputs".
        square: a square of the same step and layer; head: the head that was asked for.
        columns: the position of each column; tokens, states: its text and its state.
        newest: index of the newest token's column; None if there's only padding.
        framed: index of the column that is framed and written out: the newest unless asked for.
        kv_head: the key/value head they are of; None for queries and outputs.
        is_shared: whether `kv_head` was found from the query head.
        before: (step, unchanged, compared): how many of the columns that the step before had, too,
            hold the same numbers as then; None if that isn't known.
    """

    kind: str
    square: Square
    head: int
    values: np.ndarray
    columns: tuple[int, ...]
    tokens: tuple[str, ...]
    states: tuple[str, ...]
    newest: int | None
    framed: int | None
    kv_head: int | None
    is_shared: bool
    before: tuple[int, int, int] | None


def read_numbers(run, square: Square, kind: str, head: int, column: int | None = None) -> Numbers:
    """The numbers of one kind that a head worked with in the step and layer of `square`.

    Raises:
        ValueError: this kind wasn't kept, or there is no such head or column.
    """
    step = run[square.step]
    per_column = kind in ("keys", "values")
    kept = get_kept(step, square.layer, kind)
    n_heads = next(
        (each.shape[1] for each in _list_kept(step, square.layer, ("attention", "queries"))), None
    )
    most = (n_heads if per_column else None) or kept.shape[1]
    head = check_whole("head", head)
    if not 0 <= head < most:
        raise ValueError(
            f"head {head}: layer {square.layer} has heads 0 to {most - 1} in this recording"
        )
    kv_head = head * kept.shape[1] // most if per_column else None
    columns, texts, states = _list_columns(square, kind)
    own = head if kv_head is None else kv_head
    numbers = kept[square.sequence, own].numpy()
    at = _locate(step, square, kind, columns)
    index = [i for i, state in enumerate(states) if state in WRITTEN]
    newest = index[-1] if index else None
    if not per_column and square.newest is not None:
        newest = columns.index(square.row_positions[square.newest])
    return Numbers(
        kind=kind,
        square=square,
        head=head,
        values=numbers[at].T,
        columns=tuple(columns),
        tokens=tuple(texts),
        states=tuple(states),
        newest=newest,
        framed=newest if column is None else _find_column(column, columns),
        kv_head=kv_head,
        is_shared=per_column and n_heads is not None and kept.shape[1] != n_heads,
        before=_compare(run, step, square, kind, own, columns) if per_column else None,
    )


def _find_column(column: int, columns) -> int:
    column = check_whole("column", column)
    if column not in columns[-WIDEST:]:
        drawn = columns[-WIDEST:]
        span = f"positions {drawn[0]} to {drawn[-1]}" if drawn else "none"
        raise ValueError(f"column {column}: expected one that is drawn, {span}")
    return columns.index(column)


def get_kept(step, layer: int, kind: str):
    """One kind's tensor (B, heads, columns or rows, width) of a layer."""
    kept = step.kept.get(kind, {})
    if not kept:
        raise ValueError(
            f"{kind} were not kept in this recording: kv.record(model, keep=({kind!r},))"
        )
    if layer not in kept:
        have = ", ".join(map(str, sorted(kept)))
        raise ValueError(f"layer {layer}: {kind} were kept of layers {have} only")
    return kept[layer]


def _list_kept(step, layer: int, kinds) -> list:
    return [step.kept[kind][layer] for kind in kinds if layer in step.kept.get(kind, {})]


def _list_columns(square: Square, kind: str) -> tuple[list[int], list[str], list[str]]:
    """Position, text and state of each column that is drawn: none that is padding or empty."""
    if kind in ("queries", "outputs"):
        rows = square.real_rows
        return (
            [square.row_positions[row] for row in rows],
            [square.token_of(row) for row in rows],
            [square.row_states[row] for row in rows],
        )
    states = square.states_of(kind)
    moved = kind == "values" and square.value_tokens is not None
    texts = square.value_tokens if moved else square.tokens
    shown = [j for j, state in enumerate(states) if state not in ("pad", "empty", "dropped")]
    return shown, [texts[j] for j in shown], [states[j] for j in shown]


def _locate(step, square: Square, kind: str, columns) -> list[int]:
    """Where each column is in the kept tensor."""
    if kind in ("queries", "outputs"):
        positions = list(square.row_positions)
    else:
        positions = step.column_positions(square.layer).tolist()
    return [positions.index(column) for column in columns]


def _compare(run, step, square: Square, kind: str, head: int, columns):
    """How many columns hold the numbers they held in the step that this one follows."""
    parent = step.lineage.parents[square.sequence]
    if parent is None and not step.cached and step.index:
        before = run[step.index - 1]
        ids, was = step.token_ids[square.sequence].tolist(), before.token_ids
        rows = was.shape[0] > square.sequence
        if rows and ids[: was.shape[1]] == was[square.sequence].tolist():
            parent = before.index, square.sequence
    if parent is None:
        return None
    before, sequence = run[parent[0]], parent[1]
    if square.layer not in before.kept.get(kind, {}):
        return None
    then = before.column_positions(square.layer).tolist()
    now = step.column_positions(square.layer).tolist()
    old = before.kept[kind][square.layer][sequence, head].numpy()
    new = step.kept[kind][square.layer][square.sequence, head].numpy()
    both = [column for column in columns if column in then and column < before.visible]
    scale = SAME * max(float(np.abs(new).max()), 1e-30)
    same = [
        float(np.abs(new[now.index(column)] - old[then.index(column)]).max()) <= scale
        for column in both
    ]
    return (before.index, sum(same), len(same)) if both else None


# -- the sentence --------------------------------------------------------------------------------


def name_head(numbers: Numbers) -> str:
    """`key/value head 2, read by query head 8`."""
    if numbers.kv_head is None:
        return f"head {numbers.head}"
    words = f"key/value head {numbers.kv_head}"
    return f"{words}, read by query head {numbers.head}" if numbers.is_shared else words


def describe_numbers(numbers: Numbers, left_out: int = 0) -> str:
    """Which numbers there are, whose are the newest, and how many are unchanged."""
    square, n = numbers.square, len(numbers.columns)
    where = [f"step {square.step}", f"layer {square.layer}", name_head(numbers)]
    if square.sequence:
        where.insert(1, f"sequence {square.sequence}")
    wide = len(numbers.values)
    thing = KINDS[numbers.kind]
    clauses = [f"{pluralize(n, thing, numbers.kind)} of {pluralize(wide, 'number')}"]
    if numbers.newest is not None:
        clauses.append(f"the newest belongs to {tokens.quoted(numbers.tokens[numbers.newest])}")
    if numbers.framed != numbers.newest:
        whose = tokens.quoted(numbers.tokens[numbers.framed])
        clauses.append(f"the frame is around {whose} at position {numbers.columns[numbers.framed]}")
    work = [words for _, words in list_work(numbers)]
    clauses += work
    if numbers.before and "since step" not in work[0]:
        step, same, of = numbers.before
        clauses.append(f"{same} of {of} are unchanged since step {step}")
    clauses += [f"the oldest {left_out} are not drawn"] if left_out else []
    return f"{', '.join(where)}: {'; '.join(clauses)}"


def list_work(numbers: Numbers) -> list[tuple[list[int], str]]:
    """Which columns were read and which computed, each with words for a bracket."""
    states = numbers.states
    read = [i for i, state in enumerate(states) if state in ("read", "earlier")]
    made = [i for i, state in enumerate(states) if state in WRITTEN]
    again = sum(state == "recomputed" for state in states)
    verb = "computed"
    if numbers.kv_head is not None and numbers.square.cached:
        verb = "written"
    changed = ""
    if numbers.before and len(read) == numbers.before[2]:
        step, same, of = numbers.before
        changed = f", {'unchanged' if same == of else f'{of - same} changed'} since step {step}"
    words = f"{len(made)} {verb}" + (f", {again} of them recomputed" if again else "")
    parts = [(read, f"{len(read)} read from the cache{changed}"), (made, words)]
    return [part for part in parts if part[0]]


def check_kind(kind) -> str:
    if not isinstance(kind, str) or kind not in KINDS:
        raise ValueError(f"kind: expected one of {', '.join(KINDS)}, but got {describe(kind)}")
    return kind
