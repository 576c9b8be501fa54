"""A square in words: its numbers, and the sentence that says what a picture shows."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from math import floor

from kvviz import tokens
from kvviz.count import in_units
from kvviz.recording.square import Square
from kvviz.words import pluralize


def percent(weight: float) -> int:
    """Whole percent. Natural ties (one eighth is 12.5%) round up on every processor."""
    return floor(100 * float(weight) + 0.5 + 1e-3)


# -- around the picture --------------------------------------------------------------------------


def list_numbers(square: Square) -> list[str]:
    """This step's numbers, in parts: `fed 1 token`, `computed 1 row`, ..."""
    parts = [
        f"fed {pluralize(square.fed, 'token')}",
        f"computed {pluralize(len(square.row_positions), 'row')}",
    ]
    if square.n_recomputed:
        parts.append(f"{square.n_recomputed} of them recomputed")
    parts += filter(None, [describe_cropped(square)])
    read, written = _read(square), _written(square)
    if square.cached and any(read):
        parts.append(f"read {_keys_and_values(*read)}, wrote {_of_each(*written)}")
    elif square.cached:
        parts.append(f"wrote {_keys_and_values(*written)}")
    parts += filter(None, [describe_held(square), _describe_growth(square)])
    parts += ["keys and values in different orders"] if square.has_two_orders else []
    parts += _list_unusual(square)
    return [*parts, sink] if (sink := describe_sink(square)) else parts


def describe_held(square: Square) -> str:
    """The cache's size after this step, and what it covers; empty without a cache.

    The picture is one head's, so it says that these bytes aren't.
    """
    if not square.cached or not square.bytes:
        return ""
    words = f"whole cache: {in_units(square.bytes)}, {_all(square.n_layers, 'layer')}"
    return words + (f", {_all(square.n_sequences, 'sequence')}" if square.n_sequences > 1 else "")


def describe_cropped(square: Square) -> str:
    """How many rows stayed in the cache, and how many were cropped; empty if none was cropped."""
    if not (n := square.n_cropped):
        return ""
    kept = len(square.real_rows) - n
    return f"{kept or 'none'} kept, {n} cropped"


def describe_fed(square: Square) -> str:
    """What became of the rows: `5 rows fed: 2 kept, 3 cropped afterwards`; empty if all stayed."""
    rows, cropped = pluralize(len(square.real_rows), "row"), describe_cropped(square)
    return f"{rows} fed: {cropped} afterwards" if cropped else ""


def describe_doubt(square: Square) -> str:
    """Why the picture can't be trusted; empty if it can."""
    if not square.is_doubtful:
        return ""
    return f"not to be trusted: weights times values miss the output by {100 * square.gap:.2g}%"


def describe_sink(square: Square) -> str:
    """How much of the newest row's attention no column gets; empty if they get all of it."""
    rest = None if square.newest is None else square.left_over(square.newest)
    return f"{percent(rest)}% of its attention goes to a sink, which is no column" if rest else ""


def describe_left_out(square: Square, start: int) -> str:
    """Which columns before `start` aren't drawn, and their share; empty if there are none."""
    if not start:
        return ""
    which = name_columns(start)
    share = square.share_before(start)
    if share is None:
        return f"{which} left out"
    return f"{which} left out, where the newest row puts {percent(share)}% of its attention"


# -- the sentence --------------------------------------------------------------------------------


def describe(squares: Sequence[Square], start: int) -> str:
    """The sentence of one square, or of two beside each other."""
    each = [describe_square(square, start) for square in squares]
    return each[0] if len(each) == 1 else f"left: {each[0]}. right: {each[1]}"


def describe_square(square: Square, start: int = 0) -> str:
    """The facts that are drawn, in one sentence, with whole percents."""
    where = [f"step {square.step}", f"layer {square.layer}", f"head {square.head}"]
    if square.sequence or square.tally["pad"]:
        where.insert(1, f"sequence {square.sequence}")
    n = len(square.real_rows)
    attend = "attends" if n == 1 else "attend"
    clauses = [f"{pluralize(n, 'row')} {attend} to {pluralize(square.n_visible, 'column')}"]
    clauses.append(_describe_work(square))
    clauses += filter(None, [describe_fed(square), describe_held(square)])
    clauses += filter(None, [_describe_growth(square)])
    clauses += _list_unusual(square)
    if square.has_two_orders:
        clauses.append(_describe_orders(square))
    if square.weights is None:
        clauses.append("attention was not kept")
    elif square.newest is not None:
        clauses.append(_describe_attention(square))
    rest = describe_sink(square), describe_left_out(square, start), describe_doubt(square)
    clauses += filter(None, rest)
    return f"{', '.join(where)}: {'; '.join(clauses)}"


def describe_strip(squares: Sequence[Square], start: int = 0) -> str:
    """The sentence of several steps of one run side by side."""
    first, last = squares[0], squares[-1]
    steps = ", ".join(str(square.step) for square in squares)
    rows = ", ".join(str(len(square.real_rows)) for square in squares)
    columns = ", ".join(str(square.n_visible) for square in squares)
    doubt = next(filter(None, map(describe_doubt, squares)), "")
    cropped = [square.n_cropped for square in squares]
    columns += f"; cropped afterwards {', '.join(map(str, cropped))}" if any(cropped) else ""
    return (
        f"layer {first.layer}, head {first.head}, {'with' if last.cached else 'without'} a cache, "
        f"{'steps' if len(squares) > 1 else 'step'} {steps}: rows computed {rows}; "
        f"columns {columns}; at the end {describe_square(last, start)}"
        + (f"; {doubt}" if doubt else "")
    )


def describe_heads(squares: Sequence[Square], start: int = 0, newest_only: bool = False) -> str:
    """The sentence of all heads of a layer at one step."""
    first = squares[0]
    token = "padding" if first.newest is None else tokens.quoted(first.token_of(first.newest))
    where = f"step {first.step}, layer {first.layer}, {token} in each head"
    if first.sequence:
        where = where.replace(", ", f", sequence {first.sequence}, ", 1)
    rest = [*map(describe_head, squares), describe_sharing(squares)]
    rest += filter(None, [describe_fed(first)])
    if newest_only:
        rest.append(f"only the newest of {len(first.real_rows)} rows drawn")
    return f"{where}: {'; '.join(rest)}" + (f"; {name_columns(start)} left out" if start else "")


def describe_sharing(squares: Sequence[Square]) -> str:
    """How a layer's heads share keys and values: `each of 2 key/value heads serves 3 heads`."""
    n_kv_heads = len({square.kv_head for square in squares})
    if n_kv_heads == len(squares):
        return "each head has its own keys and values"
    if n_kv_heads == 1:
        return f"1 key/value head serves all {len(squares)} heads"
    return f"each of {n_kv_heads} key/value heads serves {len(squares) // n_kv_heads} heads"


def describe_head(square: Square) -> str:
    """Which token the newest row attends to most: `head 8 to ' object', 96%`."""
    return f"head {square.head} {_describe_most(square)}"


def name_columns(start: int) -> str:
    """The columns before `start`."""
    return "column 0" if start == 1 else f"columns 0 to {start - 1}"


# -- clauses -------------------------------------------------------------------------------------


def _read(square: Square) -> tuple[int, int]:
    """Keys and values read from the cache."""
    tallies: tuple[Counter, Counter] = square.tally, square.value_tally
    return tuple(tally["read"] + tally["earlier"] for tally in tallies)


def _written(square: Square) -> tuple[int, int]:
    """Keys and values that this step computed."""
    return len(square.written("keys")), len(square.written("values"))


def _keys_and_values(n_keys: int, n_values: int) -> str:
    return f"{pluralize(n_keys, 'key')} and {pluralize(n_values, 'value')}"


def _of_each(n_keys: int, n_values: int) -> str:
    return f"{n_keys} of each" if n_keys == n_values else _keys_and_values(n_keys, n_values)


def _all(n: int, thing: str) -> str:
    """`1 layer`, `both layers`, `all 30 layers`."""
    return f"1 {thing}" if n == 1 else f"both {thing}s" if n == 2 else f"all {n} {thing}s"


def _describe_work(square: Square) -> str:
    read, written = _read(square), _written(square)
    if square.cached and any(read):
        words = f"{_keys_and_values(*read)} read from the cache, {_of_each(*written)} written"
    else:
        words = f"{_keys_and_values(*written)} {'written' if square.cached else 'computed'}"
    again = square.tally["recomputed"]
    return f"{words}, {again} of them recomputed" if again else words


def _list_unusual(square: Square) -> list[str]:
    """Clauses for columns that are out of the ordinary."""
    n, parts = square.tally, []
    earlier = {"key": n["earlier"], "value": square.value_tally["earlier"]}
    if any(earlier.values()):
        words = " and ".join(pluralize(many, thing) for thing, many in earlier.items() if many)
        parts.append(f"{words} from an earlier prompt")
    parts += [f"{pluralize(len(square.twice), 'token')} read twice"] if square.twice else []
    parts += [f"{pluralize(n['dropped'], 'column')} out of the window"] if n["dropped"] else []
    parts += [f"{pluralize(n['empty'], 'slot')} empty"] if n["empty"] else []
    return parts + ([f"{pluralize(n['pad'], 'column')} of padding"] if n["pad"] else [])


def _describe_growth(square: Square) -> str:
    """By how many tokens the cache grew, if not by those that were fed; else empty."""
    if not square.cached or square.grown == square.fed:
        return ""
    return f"but the cache grew by {pluralize(square.grown, 'token')}"


def _describe_orders(square: Square) -> str:
    words = "keys and values are in different orders"
    key, value = square.written("keys"), square.written("values")
    if len(key) == len(value) == 1:
        words += f", the new key in column {key[0]} and the new value in column {value[0]}"
    return words


def _describe_attention(square: Square) -> str:
    """Which token the newest row attends to most."""
    token, most = tokens.quoted(square.token_of(square.newest)), _describe_most(square)
    return f"{token} attends {'' if most.endswith('nothing') else 'most '}{most}"


def _describe_most(square: Square) -> str:
    """`to ' object', 96%`, for the newest row."""
    row = square.newest
    most = square.most_attended(row)
    if most is None:
        return "to nothing"
    column, share = most
    target = tokens.quoted(square.tokens[column])
    if column == square.own_column(row):
        target = "itself"
    elif square.tokens.count(square.tokens[column]) > 1:
        target += f" in column {column}"
    return f"to {target}, {percent(share)}%"
