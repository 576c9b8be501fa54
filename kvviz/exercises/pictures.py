"""Pictures of a learner's own run, for the feedback on an exercise."""

from __future__ import annotations

from itertools import zip_longest

from kvviz.checking.compare import SEEN
from kvviz.checking.flaws import find_square_flaws
from kvviz.checking.seen import choose_head, measure_interest
from kvviz.checking.sides import see_step
from kvviz.checking.verdict_picture import Mistake, draw_flaws
from kvviz.recording.square import Square
from kvviz.recording.step import Step

GATE = 1e-4  # how far numbers of two runs may differ, relative to the largest


def picture_of_step(step: Step, expected: Step | None = None, *, title: str | None = None):
    """A `Picture` of one step of a learner's run; None if it can't be drawn.

    Beside `expected`, the same step of a right run, everything that differs is marked: keys and
    values where both runs kept them, and else rows, columns and tokens. A run that kept
    "attention" shows its shares, and so does one that kept `SEEN`, which leaves the model's own
    attention running.

    Args:
        step: such as run[1]. A run without attention shows which cells were computed.
        expected: a step of another run; if nothing differs, the picture is of `step` alone.
        title: over a picture of `step` alone; by default, what it shows.

    >>> from kvviz.exercises.pictures import picture_of_step
    >>> picture_of_step(uncached[1], run[1])
    yours: step 1, layer 1, head ...: 7 columns, 7 rows; rows 0 to 5 should not be there. ...
    """
    try:
        compared = None if expected is None else _compare(step, expected)
        return compared or _draw(_choose_square(step), title)
    except Exception:  # a learner's step may be anything, and feedback without a picture will do
        return None


def picture_of_run(run):
    """A `Picture` of the first steps of a learner's run, in a line; None if there is nothing to
    draw.

    >>> from kvviz.exercises.pictures import picture_of_run
    >>> picture_of_run(run)
    layer 0, head 0, with a cache, steps 0, 1, 2, ...: rows computed 6, 1, 1, ...
    """
    from kvviz.drawing.figures import draw_filmstrip

    try:
        return draw_filmstrip(run)
    except Exception:
        return None


def picture_of_first_difference(run, expected):
    """A `Picture` of the first step that was fed or held something else than in a right run.

    Beside it is the same step of the right run, `expected`; None if no step differs.

    >>> from kvviz.exercises.pictures import picture_of_first_difference
    >>> picture_of_first_difference(uncached, run)
    yours: step 1, layer ...: 7 columns, 7 rows; rows 0 to 5 should not be there. expected: ...
    """
    for step, right in zip_longest(run, expected):
        if step is None:
            return None
        if right is None or not _is_fed_alike(step, right):
            return picture_of_step(step, right)
    return None


def _is_fed_alike(step: Step, right: Step) -> bool:
    same_tokens = step.token_ids.tolist() == right.token_ids.tolist()
    return same_tokens and step.held_before == right.held_before


def _compare(step: Step, expected: Step):
    layers = [number for number in _list_seen(step) if number in _list_seen(expected)]
    for layer in layers:
        if found := Mistake(see_step(step, layer), see_step(expected, layer), GATE).draw():
            return found
    if layers:
        return None
    right = _choose_square(expected)
    head = right.head if step.kept.get("attention") else 0
    ours = step.square(right.layer, head)
    return draw_flaws(ours, right, find_square_flaws(ours, right))


def _draw(square: Square, title: str | None):
    from kvviz.drawing.figures import draw_step

    return draw_step(square, title=title)


def _choose_square(step: Step) -> Square:
    """The square of the head that shows most, of the layers that were kept."""
    if attention := step.kept.get("attention"):
        heads = {}
        for layer, weights in attention.items():
            interest = measure_interest(weights[0])
            heads[layer] = float(interest.max()), int(interest.argmax())
        layer = max(heads, key=lambda number: heads[number][0])
        return step.square(layer, heads[layer][1])
    if layers := _list_seen(step):
        seen = see_step(step, layers[0])
        return seen.draw_head(choose_head(seen))
    return step.square(step.layers[0], 0)


def _list_seen(step: Step) -> list[int]:
    """The layers of which queries, keys, values and outputs were kept."""
    kept = [set(step.kept.get(name, ())) for name in SEEN]
    return sorted(set.intersection(*kept))
