"""Squares made by hand, of the kinds a recording can hold; prime sizes, so a swapped axis shows."""

from types import SimpleNamespace

import numpy as np

from kvviz.recording.square import Square

TOKENS = "The| first| law| of| motion| states| that| an| object| at| rest| will| remain".split("|")


def weights(n: int) -> np.ndarray:
    """(n, n) causal attention that is the same on every machine and different in every cell."""
    rows, columns = np.mgrid[:n, :n]
    raw = np.tril(1 + (7 * rows + 3 * columns + rows * columns) % 11).astype(float)
    return raw / raw.sum(1, keepdims=True)


def square(columns, rows, row_states, *, cached=True, shares=None, tokens=None, **changes):
    n, rows = len(columns), tuple(rows)
    shares = weights(n) if shares is None else shares
    given = {
        "step": 4,
        "layer": 13,
        "head": 8,
        "sequence": 0,
        "tokens": tuple(tokens or [TOKENS[j % 13] for j in range(n)]),
        "column_states": tuple(columns),
        "row_positions": rows,
        "own_columns": rows,
        "row_states": tuple(row_states),
        "weights": shares[list(rows)].astype(np.float32),
        "masked": np.arange(n) > np.array(rows)[:, None],
        "cached": cached,
        "fed": len(rows),
        "held_before": n - len(rows) if cached else 0,
        "held_after": n if cached else 0,
        "gap": 2e-7,
    }
    return Square(**{**given, **changes})


def plain(n=7, **changes):
    """Without a cache: every row is computed, and all but the newest are recomputed."""
    states = ["recomputed"] * (n - 1) + ["new"]
    return square(states, range(n), states, cached=False, **changes)


def decode(n=7, **changes):
    """With the cache: one row."""
    return square(["read"] * (n - 1) + ["new"], [n - 1], ["new"], **changes)


def prefill(n=7, **changes):
    return square(["new"] * n, range(n), ["new"] * n, **{"step": 0, **changes})


def chunk(**changes):
    """Three tokens fed while four are held."""
    return square(["read"] * 4 + ["new"] * 3, [4, 5, 6], ["new"] * 3, **changes)


def guesses(n=7, held=3, cropped=2, **changes):
    """`n` columns, of which `held` are read; the last `cropped` are taken out again."""
    columns = ["read"] * held + ["new"] * (n - held)
    out = {"cropped": tuple(range(n - cropped, n)), **changes}
    return square(columns, range(held, n), ["new"] * (n - held), **out)


def window(**changes):
    """A layer that holds the last three: four columns fell out."""
    shares = weights(7)
    shares[6, :4] = np.nan
    shares[6] /= np.nansum(shares[6])
    columns = ["dropped"] * 4 + ["read"] * 2 + ["new"]
    return square(columns, [6], ["new"], shares=shares, **changes)


def static(**changes):
    """A cache of thirteen slots, two of them empty."""
    masked = np.arange(13)[None] > 10
    columns = ["read"] * 10 + ["new"] + ["empty"] * 2
    tokens = [*TOKENS[:11], "", ""]
    changes = {"masked": masked, "tokens": tokens, "held_before": 10, "held_after": 11, **changes}
    return square(columns, [10], ["new"], **changes)


def padded(**changes):
    """Five tokens after two columns of padding."""
    states = ["pad"] * 2 + ["new"] * 5
    masked = (np.arange(7) > np.arange(7)[:, None]) | (np.arange(7) < 2)
    return square(
        states, range(7), states, **{"masked": masked, "sequence": 1, "step": 0, **changes}
    )


def keys_in_front(n=7, **changes):
    """A cache that puts the new key before the others, and the new value behind them."""
    front = [TOKENS[(n - 1) % 13], *(TOKENS[j % 13] for j in range(n - 1))]
    return square(
        ["new"] + ["read"] * (n - 1),
        [n - 1],
        ["new"],
        tokens=front,
        own_columns=(0,),
        value_states=("read",) * (n - 1) + ("new",),
        value_tokens=tuple(TOKENS[j % 13] for j in range(n)),
        **changes,
    )


class Run(list):
    """Steps made of squares: just enough of a recording to draw a square."""

    def __init__(self, squares):
        super().__init__(
            SimpleNamespace(
                layers=(square.layer,),
                kept={},
                square=lambda layer, head, sequence, square=square: square,
            )
            for square in squares
        )
