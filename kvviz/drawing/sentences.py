"""A square in words: title, numbers and the sentence that is a picture's text twin."""

from kvviz import tokens
from kvviz.count import in_units
from kvviz.drawing import square as draw

_WORDS = "no one two three four five six seven eight nine ten eleven twelve".split()
TRUSTED = 1e-4  # largest relative gap between weights times values and the layer's output


def count(n: int, thing: str) -> str:
    """`1 key`, `9 keys`."""
    return f"{n:,} {thing}{'' if n == 1 else 's'}"


def tally(square) -> dict[str, int]:
    """How many columns are new, again, read, before, pad, empty and gone; and of `rows` asked."""
    states = ("new", "recomputed", "read", "earlier", "pad", "empty", "dropped")
    found = {state: square.column_states.count(state) for state in states}
    asked = [state for state in square.row_states if state != "pad"]
    seen = sum(found[state] for state in ("new", "recomputed", "read", "earlier"))
    return found | {"rows": len(asked), "rows recomputed": asked.count("recomputed"), "seen": seen}


def title(square, named: str | None = None) -> str:
    """What to see: `With the cache: one row`. `named` stands before the colon instead."""
    n = tally(square)
    if n["rows"] == 1 and (square.cached or n["seen"] == 1):
        see = "one row" if square.cached else "one row, one column"
    elif not square.cached:
        see = "the whole square"
    elif not square.held_before:
        see, named = "every row at once", named or "Prefill"
    else:
        see = f"{_WORDS[n['rows']] if n['rows'] < len(_WORDS) else n['rows']} rows"
        see += f", {n['rows recomputed']} of them again" if n["rows recomputed"] else ""
    return f"{named or ('With the cache' if square.cached else 'Without a cache')}: {see}"


def numbers(square) -> list[str]:
    """This step's numbers, in parts: `fed 1 token`, `computed 1 row`, ..."""
    n = tally(square)
    parts = [
        f"fed {count(square.fed, 'token')}",
        f"computed {count(len(square.row_positions), 'row')}",
    ]
    if n["rows recomputed"]:
        parts.append(f"{n['rows recomputed']} of them for the second time or more")
    held, wrote = n["read"] + n["earlier"], n["new"] + n["recomputed"]
    if square.cached and held:
        parts.append(f"read {_pairs(held)}, wrote {wrote} of each")
    elif square.cached:
        parts.append(f"wrote {_pairs(wrote)}")
    return parts + _odd(n)


def held_bytes(square) -> str:
    """What the store takes after this step, all layers together; empty without one."""
    n_bytes = getattr(square, "bytes", 0)
    return in_units(n_bytes) if square.cached and n_bytes else ""


def doubt(square) -> str:
    """Why the picture is not to be trusted; empty if it is."""
    if not square.gap > TRUSTED:
        return ""
    return f"not to be trusted: weights times values miss the output by {100 * square.gap:.2g}%"


def left_out(square, start: int) -> str:
    """Which columns before `start` are not in the picture, and what they weigh; empty if none."""
    row = draw.newest(square)
    if not start:
        return ""
    which = "column 0" if start == 1 else f"columns 0 to {start - 1}"
    if square.weights is None or row is None:
        return f"{which} left out"
    share = sum(w for w in map(float, square.weights[row, :start]) if w == w)
    return f"{which} left out, where the newest row puts {draw.percent(share)}% of its attention"


def square(square, start: int = 0) -> str:
    """The sentence: the same facts that are drawn, from the same data, in whole percents."""
    n, row = tally(square), draw.newest(square)
    where = [f"step {square.step}", f"layer {square.layer}", f"head {square.head}"]
    if square.sequence or n["pad"]:
        where.insert(1, f"sequence {square.sequence}")
    held, made = n["read"] + n["earlier"], n["new"] + n["recomputed"]
    asks = "asks" if n["rows"] == 1 else "ask"
    clauses = [f"{count(n['rows'], 'row')} {asks} {count(n['seen'], 'column')}"]
    if square.cached and held:
        clauses.append(f"{_pairs(held)} read, {made} of each written")
    else:
        clauses.append(f"{_pairs(made)} {'written' if square.cached else 'computed'}")
    clauses[-1] += f", {n['recomputed']} of each again" if n["recomputed"] else ""
    clauses += [f"the store holds {held_bytes(square)}"] if held_bytes(square) else []
    clauses += _odd(n)
    if square.weights is None:
        clauses.append("attention was not kept")
    elif row is not None:
        clauses.append(_most(square, row))
    clauses += filter(None, [left_out(square, start), doubt(square)])
    return f"{', '.join(where)}: {'; '.join(clauses)}"


def strip(squares, start: int = 0) -> str:
    """The sentence of several steps side by side."""
    first, last = squares[0], squares[-1]
    steps = ", ".join(str(s.step) for s in squares)
    rows = ", ".join(str(tally(s)["rows"]) for s in squares)
    columns = ", ".join(str(tally(s)["seen"]) for s in squares)
    doubts = next(filter(None, map(doubt, squares)), "")
    return (
        f"layer {first.layer}, head {first.head}, {'with' if last.cached else 'without'} a cache, "
        f"{'steps' if len(squares) > 1 else 'step'} {steps}: rows asked {rows}; "
        f"columns {columns}; at the end {square(last, start)}" + (f"; {doubts}" if doubts else "")
    )


def _pairs(n: int) -> str:
    return f"{count(n, 'key')} and {count(n, 'value')}"


def _odd(n: dict[str, int]) -> list[str]:
    """Clauses for columns that are out of the ordinary."""
    parts = [f"{n['earlier']} of them not as written there in this run"] if n["earlier"] else []
    parts += [f"{count(n['dropped'], 'column')} out of the window"] if n["dropped"] else []
    parts += [f"{count(n['empty'], 'slot')} empty"] if n["empty"] else []
    return parts + ([f"{count(n['pad'], 'column')} of padding"] if n["pad"] else [])


def _most(square, row: int) -> str:
    """Where the newest row's attention goes."""
    asking, found = tokens.quoted(asks(square, row)), most(square, row)
    return f"{asking} attends {'most ' * (not found.endswith('nothing'))}{found}"


def asks(square, row: int) -> str:
    """The token that this row belongs to."""
    return square.tokens[square.own_columns[row]]


def most(square, row: int) -> str:
    """`to ' object', 96%`; the first of equals, so it is always the same."""
    own, weights = square.own_columns[row], square.weights[row]
    pairs = zip(weights, square.masked[row], strict=True)
    shares = [float(share) if share == share and not masked else -1.0 for share, masked in pairs]
    largest = max(shares)
    if largest < 0:
        return "to nothing"
    at = next(j for j, share in enumerate(shares) if share >= largest - 1e-4)
    target = "itself" if at == own else tokens.quoted(square.tokens[at])
    if at != own and square.tokens.count(square.tokens[at]) > 1:
        target += f" at place {at}"
    return f"to {target}, {draw.percent(largest)}%"
