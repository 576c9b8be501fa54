"""What is written under a square: its title, and lines under that."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.drawing import sentences, style
from kvviz.recording.square import Square
from kvviz.words import pluralize

NUMERALS = "no one two three four five six seven eight nine ten eleven twelve".split()


def write_title(square: Square, name: str | None = None, *, short: bool = False) -> str:
    """The title: `With the cache: one row` or, if `short`, `step 4`.

    `name` replaces the part before the colon.
    """
    n = len(square.real_rows)
    if short:
        return f"step {square.step}"
    if n == 1 and (square.cached or square.n_visible == 1):
        see = "one row" if square.cached else "one row, one column"
    elif not square.cached:
        see = "the whole square"
    elif not square.held_before:
        see, name = "every row at once", name or "Prefill"
    else:
        see = f"{NUMERALS[n] if n < len(NUMERALS) else n} rows"
        see += f", {square.n_recomputed} of them recomputed" if square.n_recomputed else ""
    if n_cropped := square.n_cropped:
        see += ", cropped" if n == 1 else f", {n_cropped} of them cropped"
    return f"{name or ('With the cache' if square.cached else 'Without a cache')}: {see}"


def write_notes(
    square: Square, start: int, end: int, wide: float, small: bool, note: str
) -> list[tuple[str, str]]:
    """Lines under the title with their colours, each at most `wide` pixels wide.

    Columns from `start` to `end` are drawn.
    """
    if note:
        return [(line, style.QUIET) for line in flow(note.split("; "), wide)]
    if small:
        rows = pluralize(len(square.real_rows), "row")
        lines = [f"{rows}, {pluralize(square.n_visible, 'column')}"]
        lines += filter(None, [sentences.describe_cropped(square)])
        doubt = "not to be trusted" if square.is_doubtful else ""
    else:
        lines = flow([*sentences.list_numbers(square), *list_undrawn(square, end)], wide)
        lines += [sentences.describe_left_out(square, start)] if start else []
        doubt = sentences.describe_doubt(square)
    notes = [(line, style.QUIET) for line in lines]
    return notes + ([(doubt, style.ALARM)] if doubt else [])


def list_undrawn(square: Square, end: int) -> list[str]:
    """How many of the empty slots come before column `end`, if not all of them; else nothing."""
    if square.n_columns <= max(end, square.n_filled):
        return []
    return [f"{max(0, end - square.n_filled)} empty slots drawn"]


def flow(parts: Sequence[str], wide: float) -> list[str]:
    """Parts joined into as few lines as fit `wide` pixels."""
    lines = [""]
    for part in parts:
        joined = f"{lines[-1]} · {part}" if lines[-1] else part
        lines = [*lines[:-1], joined] if 6.6 * len(joined) < wide else [*lines, part]
    return lines
