"""The pictures of attention that a lesson draws from a recording: `draw_step` and its relatives."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from kvviz.arguments import check_texts, check_whole, describe, list_several
from kvviz.drawing import heads, heads_painting, layout, notes, painting, sentences, style
from kvviz.drawing.layout import Room
from kvviz.drawing.picture import Picture
from kvviz.recording.square import Square

FEW = 6  # steps in a filmstrip by default


def draw_step(
    run,
    *,
    step: int = 0,
    layer: int | None = None,
    head: int = 0,
    sequence: int = 0,
    span: int | None = None,
    title: str | None = None,
) -> Picture:
    """Draw one head's square at one step, with its four edges: keys, values, queries and outputs.

    Args:
        run: a recording, or one step's `Square`.
        step, layer, head, sequence: which square, counted from 0; by default, the first layer kept.
        span: columns to leave room for, so that pictures of several steps look alike.
        title: by default, what the square shows.

    Raises:
        TypeError: `run` isn't a recording.
        ValueError: there is no such step, layer, head or sequence, or the span is too small.

    >>> kv.draw_step(run, step=4, layer=1, head=3)
    step 4, layer 1, head 3: 1 row attends to 10 columns; 9 keys and 9 values read from the cache...
    """
    check_texts(title=title, optional=["title"])
    square = pick_square(run, step, layer, head, sequence)
    return draw_squares([square], _make_room(span), titles=[title])


def draw_side_by_side(
    left, right=None, *, step=0, layer=None, head=0, sequence=0, span=None, titles=None
) -> Picture:
    """Draw two squares beside each other: two runs at one step, one run at two steps, two heads.

    Args:
        left, right: recordings or squares. With one recording, give a pair of steps, layers, heads
            or sequences.
        step, layer, head, sequence: one for both, or a pair.
        span: columns to leave room for, so that pictures of several steps look alike.
        titles: a pair; by default, what each square shows.

    Raises:
        TypeError, ValueError: as `draw_step`.
        ValueError: both sides would show the same square.

    >>> kv.draw_side_by_side(uncached, run, step=4)
    left: step 4, layer 0, head 0: 10 rows attend ... right: step 4, ... 1 row attends ...
    """
    sides = (left, left if right is None else right)
    given = {"step": step, "layer": layer, "head": head, "sequence": sequence}
    pairs = [_make_pair(name, value) for name, value in given.items()]
    if right is None and (isinstance(left, Square) or all(one == two for one, two in pairs)):
        raise ValueError(
            "right: expected a second recording, or a pair to compare in one, such as step=(3, 4)"
        )
    squares = [pick_square(side, *(pair[i] for pair in pairs)) for i, side in enumerate(sides)]
    names: list = [None, None]
    if squares[0].step != squares[1].step:
        names = [f"Step {square.step}" for square in squares]
    elif len({(square.layer, square.head) for square in squares}) > 1:
        names = [f"Layer {square.layer}, head {square.head}" for square in squares]
    seen = [notes.write_title(square, name) for square, name in zip(squares, names, strict=True)]
    titles = seen if titles is None else _make_pair("titles", titles)
    for title in titles:
        check_texts(titles=title, optional=["titles"])
    return draw_squares(squares, _make_room(span), titles=titles)


def draw_filmstrip(
    run,
    uncached=None,
    *,
    steps: Iterable[int] | None = None,
    layer: int | None = None,
    head: int = 0,
    sequence: int = 0,
) -> Picture:
    """Draw the same square at several steps, small and in a line.

    Args:
        run: a recording.
        uncached: a recording of the same prompt without a cache, drawn above `run`.
        steps: by default, the first six.
        layer, head, sequence: which square; by default, the first layer that was kept.

    Raises:
        TypeError, ValueError: no steps, or as `draw_step`.

    >>> kv.draw_filmstrip(run, steps=range(3))
    layer 0, head 0, with a cache, steps 0, 1, 2: rows computed 6, 1, 1; columns 6, 7, 8; ...
    """
    check_run(run)
    steps = range(min(len(run), FEW)) if steps is None else steps
    steps = list_several("steps", steps, "several, such as range(3)")
    if not steps:
        raise ValueError("steps: expected at least one step")
    runs = [run] if uncached is None else [uncached, run]
    strips = [[pick_square(each, step, layer, head, sequence) for step in steps] for each in runs]
    squares = [square for strip in strips for square in strip]
    with style.scope():
        figure = painting.make_figure(layout.plan(squares, strip=len(steps)))
    start = layout.find_start(squares, small=True)
    return Picture(figure, ". ".join(sentences.describe_strip(strip, start) for strip in strips))


def draw_heads(run, *, step: int = 0, layer: int | None = None, sequence: int = 0) -> Picture:
    """Draw every head of one layer at one step, small, under the key/value head that it reads.

    Heads that share keys and values are drawn between them, so each is drawn only once.

    Raises:
        TypeError: `run` isn't a recording.
        ValueError: there is no such step, layer or sequence, or attention was not kept.

    >>> kv.draw_heads(run, step=4, layer=1)
    step 4, layer 1, '5' in each head: head 0 to ...
    """
    return draw_all_heads(pick_heads(run, step, layer, sequence))


def pick_heads(run, step: int, layer: int | None, sequence: int = 0) -> list[Square]:
    """The squares of every head of a layer."""
    if isinstance(run, Square):
        raise TypeError("expected a recording made by kv.record, but got one head's Square")
    first = pick_square(run, step, layer, 0, sequence)
    if first.weights is None:
        raise ValueError(f"layer {first.layer}: attention was not kept in this recording")
    n_heads = run[step].attention[first.layer].shape[1]
    return [first, *(run[step].square(first.layer, head, sequence) for head in range(1, n_heads))]


def draw_all_heads(squares: Sequence[Square], *, span: int | None = None) -> Picture:
    """Draw the squares of every head; `span` leaves room for more columns."""
    with style.scope():
        plan = heads.plan(squares, span=span)
        figure = heads_painting.make_figure(plan)
    return Picture(figure, sentences.describe_heads(squares, plan.start, plan.newest_only))


def draw_squares(squares: Sequence[Square], room: Room, *, titles=None) -> Picture:
    """Draw one square, or two beside each other, at full size."""
    with style.scope():
        figure = painting.make_figure(layout.plan(squares, room, titles=titles))
    return Picture(figure, sentences.describe(squares, layout.find_start(squares)))


def pick_square(run, step=0, layer: int | None = None, head=0, sequence=0) -> Square:
    """The square of this step, layer, head and sequence; a `Square` is returned as it is.

    Raises:
        TypeError: `run` isn't a recording.
        ValueError: it has no such step, layer, head or sequence; the message says which it has.
    """
    if isinstance(run, Square):
        return run
    check_run(run)
    step, head = check_whole("step", step), check_whole("head", head)
    sequence = check_whole("sequence", sequence)
    if not 0 <= step < len(run):
        have = f"steps 0 to {len(run) - 1}" if len(run) else "no steps"
        raise ValueError(f"step {step}: this recording has {have}")
    taken = run[step]
    if layer is None:
        layer = min(taken.kept.get("attention") or taken.layers)
    return taken.square(check_whole("layer", layer), head, sequence)


def check_run(run) -> None:
    """Raise TypeError unless `run` is a recording."""
    is_run = isinstance(run, Sequence) and not isinstance(run, str | bytes)
    if not is_run or not all(hasattr(step, "square") for step in run):
        raise TypeError(f"expected a recording made by kv.record, but got {describe(run)}")


def _make_room(span) -> Room:
    return Room(span=None if span is None else check_whole("span", span, least=1))


def _make_pair(name: str, given) -> tuple:
    if isinstance(given, str | bytes) or not isinstance(given, Sequence):
        return given, given
    if len(given) != 2:
        raise ValueError(f"{name}: expected one, or a pair, but got {describe(given)}")
    return tuple(given)
