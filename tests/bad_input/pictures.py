"""Rows for everything that is drawn."""

import numpy as np

import kvviz as kv
from bad_input.rows import (
    HALF,
    HUGE,
    INF,
    NAN,
    Odd,
    Of,
    Row,
    Rows,
    file_name,
    flag,
    number,
    refuse,
    several,
    text,
    whole,
)

RUN = [
    *refuse(
        "expected a recording made by kv.record, but got {}",
        None,
        3,
        "x",
        b"x",
        [1],
        {},
        Odd(),
        error=TypeError,
    ),
    Row(Of("served"), TypeError, "expected a recording made by kv.record, but got ServingRun"),
    Row(Of("model"), TypeError, "expected a recording made by kv.record, but got LlamaForCausalLM"),
    Row(Of("empty"), ValueError, "step 0: this recording has no steps"),
]
SERVING = [
    *refuse(
        "expected a recording made by kv.record_serving, but got {}",
        None,
        3,
        "x",
        {},
        Odd(),
        error=TypeError,
    ),
    Row(
        Of("run"),
        TypeError,
        "expected a recording made by kv.record_serving, but got Run of something else",
    ),
    Row(Of("empty"), ValueError, "no steps|at least one step"),
]
STEP = [*whole("step", negative=False), *refuse("step {}: this .* has steps 0 to 3", 4, -1, 10**12)]
LAYER = [
    *whole("layer", none=True, negative=False),
    *refuse("layer {} has no keys and values here; these layers do: 0 to 2", 3, -1, 10**12),
]
HEAD = [
    *whole("head", negative=False),
    *refuse("head {}: layer [01] has heads 0 to 5", 6, -1, 10**12),
]
SEQUENCE = [
    *whole("sequence", negative=False),
    *refuse("sequence {}: this recording has sequences 0 to 0", 1, -1, 10**12),
]
SPAN = [
    *whole("span", 0, none=True),
    *refuse("span {}: expected at least 6, the number of columns", 3),
]
STEPS = [
    *several("steps"),
    Row([], ValueError, "at least one step"),
    Row([9], ValueError, "step 9: this recording"),
    Row(["a"], ValueError, "step: expected a whole number.*'a'"),
    Row([None], ValueError, "step: .*None"),
]
PICKS = {"step": STEP, "layer": LAYER, "head": HEAD, "sequence": SEQUENCE}
GOOD = {"step": 1, "layer": 1, "head": 1, "sequence": 0, "span": 12}


def _picks(draw, run, names, good=True, **rest):
    """Rows for the arguments that choose a square."""
    return [
        Rows(
            lambda g, x, name=name: draw(getattr(g, run), **{**rest, name: x}),
            {**PICKS, "span": SPAN}[name],
            GOOD[name] if good else None,
        )
        for name in names
    ]


def _words(draw, *names, none=()):
    return [
        Rows(lambda g, x, name=name: draw(**{name: x}), text(name, none=name in none))
        for name in names
    ]


def _options(draw, **rows):
    return [Rows(lambda g, x, name=name: draw(**{name: x}), each) for name, each in rows.items()]


def _with(function, *given, **rest):
    return lambda **changed: function(*given, **{**rest, **changed})


ALL = ("step", "layer", "head", "sequence")
TITLE = {"none": ("title", "sentence")}
ONE_STEP = [row for row in STEP if not isinstance(row.value, list)]  # a list is a pair
PAIR = [
    Row((0, 1, 2), ValueError, "step: expected one, or a pair, but got \\(0, 1, 2\\)"),
    Row((0, 9), ValueError, "step 9: this recording"),
]
TWO_STEPS = [
    *several("steps"),
    *(
        Row(value, ValueError, "steps: expected two, the earlier first.*got")
        for value in ((0,), (1, 1), (2, 1), (0, 1, 2))
    ),
    Row((0, "a"), ValueError, "steps: expected a whole number.*'a'"),
    Row((0, 9), ValueError, "step 9: this recording"),
    Row((True, 2), ValueError, "steps: .*True"),
]
curves = _with(kv.draw_curves, [0, 1], {"a": [1, 2]}, title="t")
bars = _with(kv.draw_bars, {"a": 1, "b": 2}, title="t")
grid = _with(kv.draw_grid, {"a": {"x": True, "y": False}}, title="t")
heat = _with(kv.draw_heatmap, [[1, 2], [3, 4]], title="t")
column = _with(kv.draw_column, np.ones((2, 3)), title="t")
memory = _with(kv.draw_memory, {"a": [1, 2]}, title="t")
roof = _with(kv.draw_roofline, {"a": (1, 1)}, flops=10, bandwidth=10, title="t")
KEY = [1.0, 2.0, 3.0, 4.0]
turn = _with(kv.draw_rotation, {0: KEY, 1: KEY})
schedule = _with(kv.draw_schedule, {"sky": [9, 1, 1]})
LEVELS = [
    *refuse("levels: expected \\{name: numbers\\}, but got {}", 3, "x", [1], Odd()),
    *(
        Row({"l": value}, ValueError, "levels, 'l': expected a number.*but got")
        for value in (None, "x", True, NAN, INF, [1])
    ),
]
NUMBERS = refuse("expected .*(got|shape) \\(\\)", 3)
NUMBERS += refuse("expected .*got {}", None, "x", b"x", "5", Odd(), 1 + 2j, {1: 2})
NUMBERS += [
    Row(["5"], ValueError, "expected numbers, but got '5'"),
    Row([1, [2, 3]], ValueError, "expected numbers, but got \\[1, \\[2, 3\\]\\]"),
    Row([1, HUGE], ValueError, "expected numbers, but got int of"),
]
LENGTHS = [
    *refuse("values: expected \\{name: numbers\\}, but got {}", None, 3, "x", [1], Odd()),
    *(
        Row({"a": value}, ValueError, "'a': expected .*but got")
        for value in ("x", [1, 2], Odd(), HUGE, "5")
    ),
    Row({}, ValueError, "at least one finite number"),
    Row({"a": NAN}, ValueError, "at least one finite number"),
    Row({1: 2, "1": 3}, ValueError, "values: expected names that differ"),
]
TABLE_OF_MARKS = [
    *refuse(
        "table: expected \\{row: \\{column: True or False\\}\\}, but got {}",
        None,
        3,
        "x",
        [1],
        {"a": 1},
        Odd(),
    ),
    Row({}, ValueError, "at least one row"),
    Row({"a": {}}, ValueError, "at least one row"),
    *(
        Row({"a": {"x": value}}, ValueError, "table, 'a', 'x': expected True or False, but got")
        for value in (None, 2, "yes", [1], 0.5)
    ),
    Row(
        {"a": {"x": True}, "b": {}},
        ValueError,
        "table, 'b': expected column 'x', but it has \\[\\]",
    ),
]
MARKS = [
    *several("highlight"),
    *(Row([value], ValueError, "highlight: ") for value in (2, -1, (0, 2), "a", None, True, 0.5)),
]
ROW_MARKS = [
    *several("highlight_rows"),
    *(Row([value], ValueError, "highlight_rows: ") for value in (2, -1, (0, 1), "a", None, True)),
]
NAMES = [*refuse("{}: expected", 3), Row(["a"], ValueError, "expected 2 names, but got \\['a'\\]")]
KEYS = [
    *refuse("keys: expected \\{position: D numbers\\}, but got {}", None, 3, "x", [KEY], Odd()),
    Row({0: KEY}, ValueError, "at least two positions, but got 1"),
    *(
        Row({0: KEY, at: KEY}, ValueError, "keys, position: expected a whole number")
        for at in ("a", None, 1.5, -1, True)
    ),
    *(
        Row({0: KEY, 1: value}, ValueError, "keys\\[1\\]: expected .*but got")
        for value in ("x", None, [KEY], [NAN] * 4)
    ),
    Row({0: KEY, 1: KEY[:3]}, ValueError, "an even number of numbers"),
]
HELD = [
    *refuse("held: expected \\{name: bytes\\}, but got {}", None, 3, "x", [1], Odd()),
    Row({}, ValueError, "held: expected the bytes of at least one"),
    *(
        Row({"a": value}, ValueError, "'a': expected .*got")
        for value in ("x", [-1, 2], [NAN, 1], [[1], [2]], Odd())
    ),
]
FAILED = [
    *refuse("failed: expected \\{name: moment\\}, but got {}", 3, "x", [1], Odd()),
    Row({"b": 0}, ValueError, "failed: expected a name that is in held, but got 'b'"),
    *(
        Row({"a": value}, ValueError, "failed, 'a': expected .*got")
        for value in (9, None, "x", True, [0])
    ),
]
MOMENTS = [
    *refuse("x: expected .*but got {}", "x", Odd()),
    Row([1, 1], ValueError, "x: expected moments in rising order, but got \\[1.0, 1.0\\]"),
    Row([0, NAN], ValueError, "rising order.*nan"),
    Row([0], ValueError, "'a': expected 1 number.*got shape \\(2,\\)"),
]
POINTS = [
    *refuse(
        "points: expected \\{name: point\\}, at least one, but got {}", None, 3, "x", [1], {}, Odd()
    ),
    *(
        Row({"a": value}, ValueError, "points, 'a': expected .*but got")
        for value in (
            3,
            None,
            "xy",
            (1,),
            (1, 2, 3),
            (0, 1),
            (1, NAN),
            (1, None),
            (True, 1),
            (1, "x"),
            (1, HUGE),
        )
    ),
]
ROWS = [
    *refuse(
        "expected a recording made by kv.record_serving, but got {}",
        None,
        3,
        "x",
        Odd(),
        error=TypeError,
    ),
    Row({}, ValueError, "expected the rows of at least one request"),
    Row({"a": []}, ValueError, "expected at least one step"),
    *(
        Row({"a": value}, ValueError, "'a': expected the rows in each step, but got")
        for value in (3, "x", {})
    ),
    *(
        Row({"a": [value]}, ValueError, "'a': expected a whole number.*got")
        for value in (-1, 1.5, "x", True, NAN)
    ),
]
PROMPTS = [
    *refuse("prompts: expected \\{request: numbers\\}, but got {}", 3, "x", [1], Odd()),
    Row({"b": 1}, ValueError, "prompts: expected the name of a request, but got 'b'"),
    *(
        Row({"sky": value}, ValueError, "prompts, 'sky': expected a whole number")
        for value in (0, "x", True, 1.5)
    ),
]
PADDING = [
    *refuse("padding: expected \\{request: numbers\\}, but got {}", 3, "x", [1], Odd()),
    Row({"b": [1]}, ValueError, "padding: expected the name of a request, but got 'b'"),
    *(
        Row({"sky": value}, ValueError, "padding, 'sky': expected")
        for value in (3, "x", [-1], [None, "x"])
    ),
]
SQUARE = Row(Of("square"), TypeError, "expected a recording made by kv.record, but got one.*Square")
COUNTS = Row(Of("counts"), ValueError, "(not|wasn't|weren't) kept")
TITLES = [
    Row(3, ValueError, "titles: expected text, but got 3"),
    Row(("a", 3), ValueError, "titles: expected text, but got 3"),
    Row(("a",), ValueError, "titles: expected one, or a pair, but got \\('a',\\)"),
]


def heads(run, **given):
    return kv.draw_heads(run, **given)


TABLE = {
    "Picture": [
        Rows(
            lambda g, x: kv.Picture(x, "s"),
            refuse(
                "figure: expected one of matplotlib, but got {}",
                None,
                3,
                "x",
                Odd(),
                error=TypeError,
            ),
        ),
        Rows(lambda g, x: kv.Picture(g.picture.figure, x), text("sentence")),
    ],
    "Picture.png": [Rows(lambda g, x: g.picture.png(x), number("sharpness", 0, 9, 10**12, 1e-9))],
    "Picture.save": [Rows(lambda g, x: g.picture.save(x), file_name(".png"))],
    "draw_step": [
        Rows(lambda g, x: kv.draw_step(x), RUN),
        *_picks(kv.draw_step, "run", (*ALL, "span")),
        Rows(lambda g, x: kv.draw_step(g.run, title=x), text("title", none=True)),
        Rows(
            lambda g, x: kv.draw_step(g.some, layer=x),
            refuse("layer {}: attention was kept of layers 1 only", 0),
        ),
    ],
    "draw_side_by_side": [
        Rows(lambda g, x: kv.draw_side_by_side(x, g.run), RUN),
        Rows(
            lambda g, x: kv.draw_side_by_side(g.run, x),
            [row for row in RUN if row.value is not None],
        ),
        Rows(lambda g, x: kv.draw_side_by_side(g.run, step=x), PAIR),
        Rows(lambda g, x: kv.draw_side_by_side(g.run, g.uncached, step=x), ONE_STEP),
        Rows(lambda g, x: kv.draw_side_by_side(g.run, g.uncached, titles=x), TITLES),
        Rows(lambda g, x: kv.draw_side_by_side(g.run, g.uncached, span=x), SPAN),
        Rows(
            lambda g, x: kv.draw_side_by_side(g.run, g.other, layer=x),
            refuse("layer {} has no keys and values here; these layers do: 0, 1", 2),
        ),
    ],
    "draw_filmstrip": [
        Rows(lambda g, x: kv.draw_filmstrip(x), [row for row in RUN if row.value != "empty"]),
        Rows(lambda g, x: kv.draw_filmstrip(g.run, steps=x), STEPS),
        Rows(
            lambda g, x: kv.draw_filmstrip(g.run, x), [row for row in RUN if row.value is not None]
        ),
        Rows(
            lambda g, x: kv.draw_filmstrip(x),
            [Row(Of("empty"), ValueError, "steps: expected at least one step")],
        ),
        *_picks(kv.draw_filmstrip, "run", ("layer", "head", "sequence"), good=False),
    ],
    "draw_heads": [
        Rows(lambda g, x: kv.draw_heads(x), [*RUN, COUNTS, SQUARE]),
        *_picks(heads, "run", ("step", "layer", "sequence"), good=False),
    ],
    "draw_overlay": [
        Rows(
            lambda g, x: kv.draw_overlay(x, steps=(0, 1)),
            [row for row in RUN if row.value != "empty"],
        ),
        Rows(lambda g, x: kv.draw_overlay(g.run, steps=x), TWO_STEPS),
        *_picks(kv.draw_overlay, "run", ("layer", "head", "sequence"), good=False, steps=(0, 1)),
    ],
    "draw_flow": [
        Rows(lambda g, x: kv.draw_flow(x), [*RUN, SQUARE]),
        *_picks(kv.draw_flow, "run", ALL, good=False),
        Rows(lambda g, x: kv.draw_flow(g.run, title=x), text("title", none=True)),
    ],
    "draw_numbers": [
        Rows(lambda g, x: kv.draw_numbers(x), [*RUN, COUNTS, SQUARE]),
        *_picks(kv.draw_numbers, "run", ALL, good=False),
        Rows(
            lambda g, x: kv.draw_numbers(g.run, kind=x),
            refuse(
                "kind: expected one of keys, values, queries, outputs, but got {}",
                None,
                3,
                "key",
                ["keys"],
                Odd(),
                HALF,
            ),
        ),
        Rows(
            lambda g, x: kv.draw_numbers(g.run, column=x),
            [
                *whole("column", none=True, negative=False),
                *refuse("column {}: expected one that is drawn, positions 0 to 5", 6, -1, 10**12),
            ],
        ),
        Rows(lambda g, x: kv.draw_numbers(g.run, title=x), text("title", none=True)),
    ],
    "draw_curves": [
        Rows(
            lambda g, x: kv.draw_curves(x, {"a": [1, 2]}, title="t"),
            [
                *NUMBERS,
                Row(
                    [[1, 2]], ValueError, "x: expected a list of numbers, but got shape \\(1, 2\\)"
                ),
            ],
        ),
        Rows(
            lambda g, x: kv.draw_curves([0, 1], {"a": x}, title="t"),
            [
                *NUMBERS,
                Row([1], ValueError, "'a': expected 2 numbers, one for each x; got \\(1,\\)"),
                Row([NAN, INF], ValueError, "at least one finite number"),
            ],
        ),
        Rows(
            lambda g, x: kv.draw_curves([0, 1], x, title="t"),
            refuse("curves: expected \\{name: numbers\\}, but got {}", None, 3, "x", [1], Odd()),
        ),
        *_words(curves, "title", "xlabel", "ylabel", "areas", "sentence", none=["sentence"]),
        *_options(
            curves,
            log=flag("log"),
            stairs=flag("stairs"),
            levels=LEVELS,
            rounding=[
                *number("rounding", 0, none=True),
                Row(1e-3, ValueError, "rounding: .*and log=True with it, but got log=False"),
            ],
        ),
    ],
    "draw_bars": [
        Rows(lambda g, x: kv.draw_bars(x, title="t"), LENGTHS),
        *_words(bars, "title", "xlabel", "marked", "sentence", none=["sentence"]),
        *_options(
            bars,
            log=flag("log"),
            levels=LEVELS,
            highlight=[
                *several("highlight"),
                Row(["c"], ValueError, "highlight: expected names in values, but got 'c'"),
            ],
        ),
    ],
    "draw_grid": [
        Rows(lambda g, x: kv.draw_grid(x, title="t"), TABLE_OF_MARKS),
        *_words(grid, "title", "marked", "unmarked", "sentence", none=["sentence"]),
        *_options(
            grid,
            sort=flag("sort"),
            columns=[
                *several("columns"),
                Row(["z"], ValueError, "table, 'a': expected column 'z', but it has"),
                Row([], ValueError, "at least one column"),
                Row([[1]], ValueError, "expected column \\[1\\]"),
            ],
        ),
    ],
    "draw_heatmap": [
        Rows(
            lambda g, x: kv.draw_heatmap(x, title="t"),
            [row for row in NUMBERS if row.value != [1, [2, 3]]],
        ),
        Rows(
            lambda g, x: kv.draw_heatmap(x, title="t"),
            [
                Row([[1, 2], [3]], ValueError, "values: expected rows of one length"),
                Row(
                    [1, 2],
                    ValueError,
                    "expected a table \\(rows, columns\\), but got shape \\(2,\\)",
                ),
                *(
                    Row([[value]], ValueError, "values: expected finite numbers, and NaN")
                    for value in (NAN, INF)
                ),
            ],
        ),
        *_words(
            heat, "title", "xlabel", "ylabel", "marked", "nothing", "sentence", none=["sentence"]
        ),
        *_options(
            heat,
            percent=flag("percent"),
            limit=number("limit", 0, none=True),
            highlight=MARKS,
            highlight_rows=ROW_MARKS,
            rows=[
                *several("rows"),
                Row(["a"], ValueError, "rows: expected 2 names, but got \\['a'\\]"),
            ],
            columns=[
                *several("columns"),
                Row(["a"], ValueError, "columns: expected 2 names, but got \\['a'\\]"),
            ],
        ),
    ],
    "draw_rotation": [
        Rows(lambda g, x: kv.draw_rotation(x), KEYS),
        *_words(turn, "title", "sentence", none=["title", "sentence"]),
        *_options(
            turn,
            pairs=[
                *several("pairs"),
                *(
                    Row([value], ValueError, "pairs: expected 1 to .* of 0 to 1, but got")
                    for value in (2, -1, "a", None, True, 0.5)
                ),
                Row([], ValueError, "pairs: .*got \\[\\]"),
            ],
            values=[
                *refuse(
                    "values: expected \\{position: D numbers\\}, but got {}", 3, "x", [1], Odd()
                ),
                Row(
                    {0: KEY, 2: KEY},
                    ValueError,
                    "values: expected the keys' positions, \\[0, 1\\], but got \\[0, 2\\]",
                ),
            ],
        ),
    ],
    "draw_column": [
        Rows(
            lambda g, x: kv.draw_column(x, title="t"),
            [
                *NUMBERS,
                Row(
                    [1],
                    ValueError,
                    "change: expected numbers \\(n_layers, N\\), but got shape \\(1,\\)",
                ),
                Row([[INF]], ValueError, "change: expected numbers, and NaN only in new columns"),
            ],
        ),
        *_words(column, "title", "sentence", none=["sentence"]),
        *_options(
            column,
            tokens=[
                *several("tokens"),
                Row(["a"], ValueError, "tokens: expected 3, one for each position, but got 1"),
            ],
            floor=number("floor", 0, 1),
        ),
    ],
    "draw_memory": [
        Rows(lambda g, x: kv.draw_memory(x, title="t"), HELD),
        *_words(memory, "title", "xlabel", "sentence", none=["sentence"]),
        *_options(memory, budget=number("budget", 0, none=True), failed=FAILED, x=MOMENTS),
    ],
    "draw_roofline": [
        Rows(lambda g, x: kv.draw_roofline(x, flops=10, bandwidth=10, title="t"), POINTS),
        *_words(roof, "title", "sentence", none=["sentence"]),
        *_options(roof, flops=number("flops", 0), bandwidth=number("bandwidth", 0)),
    ],
    "draw_schedule": [
        Rows(lambda g, x: kv.draw_schedule(x), ROWS),
        Rows(
            lambda g, x: kv.draw_schedule(x),
            [
                Row(Of("run"), TypeError, "kv.record_serving, but got Run of something else"),
                Row(Of("empty"), ValueError, "at least one step"),
            ],
        ),
        *_words(schedule, "title", "sentence", none=["title", "sentence"]),
        *_options(
            schedule,
            prompts=PROMPTS,
            padding=PADDING,
            by=refuse('by: expected "step" or "row", but got {}', None, 3, "x", ["step"], Odd()),
            step=[
                *whole("step", none=True, negative=False),
                *refuse("step {}: this schedule has steps 0 to 2", 3, -1),
            ],
        ),
        Rows(
            lambda g, x: kv.draw_schedule(g.served, prompts=x),
            [Row({"req_0": 1}, ValueError, "prompts: expected only with .*but got ServingRun")],
        ),
    ],
    **{
        f"draw_{name}": [
            Rows(lambda g, x, draw=draw: draw(x), SERVING),
            Rows(lambda g, x, draw=draw: draw(g.served, step=x), STEP, 1),
            Rows(lambda g, x, draw=draw: draw(g.served, title=x), text("title", none=True)),
        ]
        for name, draw in {
            "pages": kv.draw_pages,
            "pass": kv.draw_pass,
            "waste": kv.draw_waste,
        }.items()
    },
}
TABLE["draw_pass"] += [
    Rows(
        lambda g, x: kv.draw_pass(g.served, layer=x),
        [*whole("layer", none=True), *refuse("layer {}: attention was kept for layers 0, 1, 2", 3)],
    ),
    Rows(
        lambda g, x: kv.draw_pass(g.served, head=x),
        [*whole("head"), *refuse("head {}: layer 0 has heads 0 to 5", 6)],
    ),
]
TABLE["draw_waste"] += [
    Rows(
        lambda g, x: kv.draw_waste(g.served, slab=x),
        [*whole("slab", 0, none=True), *refuse("slab: expected at least 7", 1)],
    )
]
