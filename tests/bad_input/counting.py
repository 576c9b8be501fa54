"""Rows for counting, timing, texts and configs."""

import kvviz as kv
from bad_input.rows import HALF, NAN, Odd, Row, Rows, flag, number, refuse, whole

c = kv.count
CONFIG = refuse(
    "expected a config, such as model.config, got {}",
    None,
    3,
    "llama",
    {},
    Odd(),
    type,
    error=TypeError,
)
WAYS = {"held": 10, "batch_size": 2}


def _sized(name, *more):
    """Rows for the arguments that every count of bytes has."""
    function = getattr(c, name)
    return [
        Rows(lambda g, x: function(x, *more), CONFIG),
        Rows(
            lambda g, x: function(g.config, *more, bytes_per_number=x),
            number("bytes_per_number", 0),
        ),
    ]


def _batched(name, first):
    function = getattr(c, name)
    extra = {"bits": 8, "group": 22} if name == "quantised_bytes" else {}
    return [
        Rows(lambda g, x: function(g.config, x, **extra), whole(first), 4),
        Rows(lambda g, x: function(g.config, 4, batch_size=x, **extra), whole("batch_size", 0), 2),
    ]


def _rows(name):
    function = getattr(c, name)
    return [
        Rows(lambda g, x: function(x, 3, cached=True), whole("n_prompt", 0), 5),
        Rows(lambda g, x: function(5, x, cached=False), whole("n_new", 10**12), 3),
        Rows(lambda g, x: function(5, 3, cached=x), flag("cached")),
    ]


HELD = whole("held", negative=True)
HELD = [row for row in HELD if not isinstance(row.value, list | dict)]  # several lengths
HELD = [row for row in HELD if getattr(row.value, "shape", ()) == ()]
HELD += refuse("held: expected lengths, but got {}", {1: 2}, {"a": 1})
HELD += [
    Row([3, value], ValueError, "held: expected a whole number") for value in (-1, 2.5, None, True)
]


def _paged(call):
    return [
        Rows(lambda g, x: call(g, x, 16, 0), HELD, 33),
        Rows(lambda g, x: call(g, 33, x, 0), whole("page_size", 0), 16),
        Rows(
            lambda g, x: call(g, 33, 16, x),
            [*whole("prefix"), Row(34, ValueError, "at most 33.*got 34")],
            4,
        ),
    ]


def _compare(name):
    """Rows for a method that takes one of the names that were timed, and perhaps another."""
    names = refuse("expected a name that was timed .*got {}", None, 3, "c", [1], Odd(), HALF)
    rows = [Rows(lambda g, x: getattr(g.comparison, name)(x), names)]
    if name != "median":
        names = [row for row in names if row.value is not None]
        rows += [Rows(lambda g, x: getattr(g.comparison, name)("b", x), names)]
    if name == "tells":
        rows += [Rows(lambda g, x: g.comparison.tells("b", factor=x), number("factor", 0))]
    return rows


SECONDS = "expected seconds of each call in every round, got {}"
SECONDS = refuse(
    SECONDS, None, 3, "x", [1.0], {}, {"a": ()}, {"a": 3}, {1: (2.0,)}, {"a": (1.0,), "b": ()}
)
SECONDS += [
    Row({"a": (value,)}, ValueError, "seconds of 'a': expected a number above 0, but got")
    for value in (0, -1, NAN, None, "x", True)
]
CALLS = refuse(
    "expected {name: function}, got {}".replace("{n", "\\{n").replace("n}", "n\\}"),
    None,
    3,
    [int, int],
    "x",
    error=TypeError,
)
CALLS += [
    Row({"a": int, "b": 3}, TypeError, "expected a name and a function.*'b': 3"),
    Row({"a": int, 1: int}, TypeError, "expected a name and a function.*1: the class int"),
    Row({"a": int}, ValueError, "expected at least two calls to compare, got 1"),
    Row({}, ValueError, "expected at least two calls to compare, got 0"),
]
TWO = {"a": int, "b": int}
FIELDS = "expected the fields of a config.json"
JSON = {  # what a file holds: the error, and what it says
    "[1, 2]": (ValueError, f"{FIELDS}, with a model_type .*, got \\[1, 2\\]"),
    "null": (ValueError, f"{FIELDS}, with a model_type .*, got None"),
    "3": (ValueError, f"{FIELDS}, with a model_type .*, got 3"),
    "": (kv.ModelUnavailable, "can't be read"),
    '{"model_type": "lla': (kv.ModelUnavailable, "can't be read"),
    "[" * 100_000: (kv.ModelUnavailable, "can't be read: RecursionError"),
    '{"model_type": "llama", "hidden_size": 1' + "0" * 5000 + "}": (
        kv.ModelUnavailable,
        "can't be read",
    ),
    '{"x": "' + "a" * 11_000_000 + '"}': (ValueError, f"{FIELDS}, got a file of 11,000,009 bytes"),
    "{}": (ValueError, f"{FIELDS}, with a model_type .*, got None"),
    '{"model_type": ["llama"]}': (ValueError, "got \\['llama'\\]"),
    '{"model_type": "llama", "num_hidden_layers": "many"}': (ValueError, "expected int, got str"),
    '{"model_type": "llama", "num_hidden_layers": true}': (ValueError, "expected int, got bool"),
    '{"model_type": "llama", "hidden_size": NaN}': (ValueError, "expected int, got float"),
    '{"model_type": "llama", "layer_types": "x"}': (ValueError, "don't make a llama config"),
    '{"model_type": "llama", "rope_scaling": [1]}': (ValueError, "don't make a llama config"),
}


def _load_json(g, content):
    file = g.folder / "config.json"
    file.write_text(content)
    try:
        return kv.load_config(file)
    finally:
        file.unlink()


SOURCE = [
    Row("a/b/c", kv.ModelUnavailable, "no such folder.*a/b/c; and it can't be a hub name"),
    Row("x\0y", kv.ModelUnavailable, r"no such folder.*x\\0y; and"),
    Row(HALF, kv.ModelUnavailable, r"no such folder.*\\ud800; and"),
    Row("~nobody-of-this-name/x", kv.ModelUnavailable, "no such folder.*~nobody-of-this-name/x"),
    Row("", ValueError, "got ''"),
    Row("folder", ValueError, "expected .*folder.* config.json.*got 'folder'"),
    *refuse(
        "expected .*a folder.*or a hub name, got {}",
        3,
        b"x",
        [1],
        Odd(),
        NAN,
        True,
        error=TypeError,
    ),
]
HUGE_CONFIG = refuse(
    "llama is unsupported: expected `num_hidden_layers`.* but got", -3, 0, 10**11, True, "x"
)

TABLE = {
    "load_text": [
        Rows(
            lambda g, x: kv.load_text(x),
            refuse("expected the name of a text.*got {}", None, 3, "x", [1], Odd(), HALF),
        )
    ],
    "load_config": [
        Rows(
            lambda g, x: kv.load_config(x),
            [*SOURCE, *refuse("expected .*got None", None, error=TypeError)],
        ),
        Rows(
            lambda g, x: kv.load_config(x),
            [
                Row({"model_type": 3}, ValueError, f"{FIELDS}.*got 3"),
                Row({}, ValueError, "got None"),
            ],
        ),
        Rows(_load_json, [Row(content, *answer) for content, answer in JSON.items()]),
    ],
    "load_model": [
        Rows(lambda g, x: kv.load_model(x), SOURCE),
        Rows(lambda g, x: kv.load_model("a/b/c", progress=x), flag("progress")[1:]),
    ],
    "count.rows": _rows("rows"),
    "count.positions": _rows("positions"),
    "count.cells": _rows("cells"),
    "count.layers": [
        Rows(lambda g, x: c.layers(x), CONFIG),
        Rows(lambda g, x: c.layers(g.config_with(num_hidden_layers=x)), HUGE_CONFIG),
    ],
    "count.bytes_per_token": _sized("bytes_per_token"),
    "count.cache_bytes": [*_sized("cache_bytes", 4), *_batched("cache_bytes", "held")],
    "count.allocated_bytes": [*_sized("allocated_bytes", 4), *_batched("allocated_bytes", "slots")],
    "count.quantised_bytes": [
        Rows(lambda g, x: c.quantised_bytes(x, 10, bits=8), CONFIG),
        *_batched("quantised_bytes", "held"),
        *(
            Rows(
                lambda g, x, name=name: c.quantised_bytes(
                    g.config, 10, **{"bits": 8, "group": 22, name: x}
                ),
                rows,
            )
            for name, rows in {
                "bits": number("bits", 0),
                "scale_bytes": number("scale_bytes"),
                "bytes_per_number": number("bytes_per_number", 0),
                "group": [
                    *whole("group", 0),
                    Row(10**12, ValueError, "expected a divisor.*got 1000000000000"),
                ],
                "recent": [
                    *whole("recent"),
                    Row(11, ValueError, "at most the 10 tokens held, but got 11"),
                ],
            }.items()
        ),
    ],
    "count.pages_needed": _paged(
        lambda g, held, size, prefix: c.pages_needed(held, size, prefix=prefix)
    ),
    "count.paged_bytes": [
        *_paged(lambda g, held, size, prefix: c.paged_bytes(g.config, held, size, prefix=prefix)),
        Rows(lambda g, x: c.paged_bytes(x, 10, 16), CONFIG),
        Rows(
            lambda g, x: c.paged_bytes(g.config, 10, 16, bytes_per_number=x),
            number("bytes_per_number", 0),
        ),
    ],
    "count.in_units": [Rows(lambda g, x: c.in_units(x), number("n_bytes"), 2048)],
    "timing.Comparison": [Rows(lambda g, x: kv.timing.Comparison(x), SECONDS)],
    **{
        f"timing.Comparison.{name}": _compare(name)
        for name in ("median", "ratio", "ratios", "spread", "tells")
    },
    "timing.compare": [
        Rows(lambda g, x: kv.timing.compare(x, rounds=1, warmup=0), CALLS),
        Rows(lambda g, x: kv.timing.compare(TWO, rounds=x), whole("rounds", 0, 10**9)),
        Rows(lambda g, x: kv.timing.compare(TWO, rounds=1, warmup=x), whole("warmup", 10**9)),
        Rows(lambda g, x: kv.timing.compare(TWO, rounds=1, repeats=x), whole("repeats", 0, 10**9)),
        Rows(lambda g, x: kv.timing.compare(TWO, rounds=1, progress=x), flag("progress")[1:]),
    ],
}
