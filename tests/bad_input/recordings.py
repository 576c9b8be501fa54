"""Rows for recording, and for what a recording's steps and squares take."""

import torch

import kvviz as kv
from bad_input.rows import (
    HALF,
    HUGE,
    NAN,
    Odd,
    Of,
    Row,
    Rows,
    file_name,
    refuse,
    several,
    whole,
)

KEEP = [
    *refuse(
        "keep takes any of .*but got {}",
        None,
        3,
        True,
        b"keys",
        {"keys": 1},
        Odd(),
        torch.tensor(1),
        error=TypeError,
    ),
    *refuse("keep takes any of .*but got {}", "key", HALF),
    Row(["keys", 3], ValueError, "keep takes any of .*but got 3"),
    Row([["keys"]], ValueError, "keep takes any of .*but got \\['keys'\\]"),
]
LAYER = "this model has layers 0 to 2, but got"
LAYERS = refuse(f"{LAYER} {{}}", 3, -1, True, 1.5, "0", b"0", {0: 1}, Odd(), NAN, torch.tensor(1.0))
LAYERS += [Row(value, ValueError, LAYER) for value in ([0, 3], [None], ["a"], range(5), [[0]])]
TOKENIZER = refuse(
    "tokenizer: expected one of transformers.*but got {}",
    3,
    "x",
    b"x",
    [1],
    Odd(),
    int,
    error=TypeError,
)


def _enter(recorder):
    with recorder:
        pass


def _recorder(record, model, keep):
    return [
        Rows(lambda g, x: _enter(record(x)), model),
        Rows(lambda g, x: _enter(record(g.model, x)), TOKENIZER),
        Rows(lambda g, x: _enter(record(g.model, keep=x)), keep),
        Rows(lambda g, x: _enter(record(g.model, layers=x)), LAYERS),
        Rows(lambda g, x: _enter(record(g.model, max_bytes=x)), whole("max_bytes"), 2**20),
    ]


STEP = "step {}: this recording has steps 0 to 3"
INDEX = [
    *refuse(
        "expected a step's number or a slice, but got {}",
        None,
        True,
        1.5,
        "0",
        [0],
        Odd(),
        NAN,
        error=TypeError,
    ),
    Row(slice("a", None), TypeError, "expected a step's number or a slice, but got slice"),
    *refuse(STEP, 4, -5, 10**12, error=IndexError),
    Row(HUGE, IndexError, "step int of 1329 bits: this recording has steps 0 to 3"),
]
COUNT = [
    Rows(lambda g, x: kv.Run().reserve(x), whole("n_bytes"), 8),
    Rows(
        lambda g, x: kv.Run(max_bytes=9).reserve(x),
        [Row(10, MemoryError, "to 10 bytes, over its limit of 9 bytes")],
    ),
]
SEQUENCE = refuse(
    "sequence {}: this recording has sequences 0 to 0",
    1,
    -1,
    True,
    None,
    0.0,
    "0",
    [0],
    Odd(),
    NAN,
    HUGE,
)
NO_LAYER = refuse(
    "layer {} has no keys and values here; these layers do: 0 to 2",
    3,
    -1,
    True,
    None,
    0.0,
    "0",
    [0],
    Odd(),
    NAN,
    HUGE,
)
HEAD = refuse(
    "head {}: layer 1 has heads 0 to 5", 6, -1, True, None, 0.0, "0", [0], Odd(), NAN, HUGE
)
REQUEST = refuse("no request {}.*", None, 3, "x", "", [1], Odd(), HALF, HUGE)
NO_FILE = [
    *refuse(
        "path: expected the name of a file, but got {}", None, 3, b"x", [1], Odd(), error=TypeError
    ),
    *refuse("path: expected the name of a file, but got", HALF, "a\0b"),
    Row("no-such.npz", FileNotFoundError, "no-such.npz: expected a file, but there's none"),
    Row("folder", IsADirectoryError, "folder: expected a file, but this is a folder"),
    Row("/dev/null", OSError, "/dev/null: expected a file, but this is a device or a pipe"),
    *(
        Row(f"{name}.npz", ValueError, f"{name}.npz is not a recording that .*save wrote")
        for name in (
            "text",
            "truncated",
            "empty",
            "pickled",
            "other",
            "bare",
            "newer",
            "bomb",
            "held",
            "listed",
            "worded",
            "nested",
        )
    ),
]


def _row_of(name, extra=()):
    return [Rows(lambda g, x: getattr(g.square, name)(x), [*whole("row", 6, 10**12), *extra], 2)]


def _start_of(name):
    return [Rows(lambda g, x: getattr(g.square, name)(x), whole("start"), 2)]


ROLE = refuse(
    "role: expected 'keys' or 'values', but got {}", None, 3, "key", ["keys"], Odd(), HALF
)
SERVED_LAYER = whole("layer", none=True)
IDS = [
    *several("token_ids"),
    *(
        Row(value, ValueError, "token_ids: expected a whole number")
        for value in ([None], ["a"], [1.5], [True])
    ),
]


def _steps(kind, run, step, other):
    return {
        f"{kind}": [
            Rows(lambda g, x: getattr(kv, kind)(tokenizer=x), TOKENIZER),
            Rows(lambda g, x: getattr(kv, kind)(max_bytes=x), whole("max_bytes"), 9),
        ],
        f"{kind}.__getitem__": [Rows(lambda g, x: getattr(g, run)[x], INDEX, 1)],
        f"{kind}.label": [
            Rows(lambda g, x: getattr(g, run).label(x), whole("token", negative=False), 3)
        ],
        f"{kind}.append": [
            Rows(
                lambda g, x: getattr(kv, kind)().append(x),
                refuse(
                    f"step: expected a {step}, but got",
                    None,
                    3,
                    "x",
                    Odd(),
                    Of(other),
                    Of(run),
                    error=TypeError,
                ),
            )
        ],
        f"{kind}.reserve": COUNT,
        f"{kind}.load": [Rows(lambda g, x: getattr(kv, kind).load(x), NO_FILE)],
        f"{kind}.save": [Rows(lambda g, x: getattr(g, run).save(x), file_name(".npz"))],
    }


TABLE = {
    "record": _recorder(
        kv.record,
        refuse("record takes .*but got {}", None, 3, "x", kv.Forge, Odd(), error=TypeError),
        KEEP,
    ),
    "record_serving": _recorder(
        kv.record_serving,
        refuse(
            "record_serving takes a model of transformers.*got",
            None,
            3,
            "x",
            Of("forge"),
            Odd(),
            error=TypeError,
        ),
        refuse(
            "keep takes \\('attention',\\) or \\(\\), but got {}",
            None,
            3,
            "keys",
            ["keys"],
            [["attention"]],
            {"attention": 1},
            b"attention",
            Odd(),
        ),
    ),
    **_steps("Run", "run", "Step", "served_step"),
    **_steps("ServingRun", "served", "ServingStep", "step"),
    "Run.choose_head": [
        Rows(
            lambda g, x: g.run.choose_head(x),
            [
                *several("layers"),
                Row(["a"], ValueError, "layers: expected a whole number"),
                Row([99], ValueError, "attention for at least one of the layers"),
            ],
        ),
        Rows(lambda g, x: g.run.choose_head(sequence=x), SEQUENCE),
        Rows(
            lambda g, x: x.choose_head(),
            [
                Row(Of("counts"), ValueError, "expected a recording that kept attention"),
                Row(Of("empty"), ValueError, "expected a recording that kept attention"),
            ],
        ),
    ],
    "Step.column_positions": [Rows(lambda g, x: g.step.column_positions(x), NO_LAYER, 1)],
    "Step.row_positions": [Rows(lambda g, x: g.step.row_positions(x), NO_LAYER, 1)],
    "Step.square": [
        Rows(lambda g, x: g.step.square(x, 0).weights.tolist(), NO_LAYER, 1),
        Rows(lambda g, x: g.step.square(1, x).weights.tolist(), HEAD, 1),
        Rows(lambda g, x: g.step.square(1, 0, x).weights.tolist(), SEQUENCE, 0),
        Rows(
            lambda g, x: g.some[0].square(x, 0),
            refuse(
                "layer {}: attention was kept of layers 1 only; record\\(.*\\) keeps it, too",
                0,
                2,
            ),
        ),
        Rows(lambda g, x: g.counts[0].square(0, x), whole("head")),
    ],
    "Step.tokens": [Rows(lambda g, x: g.step.tokens(x), SEQUENCE, 0)],
    "Step.trace_columns": [
        Rows(lambda g, x: g.step.trace_columns(x, "keys_known"), SEQUENCE, 0),
        Rows(
            lambda g, x: g.step.trace_columns(0, x),
            refuse(
                "known: expected 'keys_known' or 'values_known', but got {}",
                None,
                "keys",
                3,
                [1],
                Odd(),
            ),
        ),
    ],
    **{
        f"Square.{name}": _row_of(name)
        for name in ("own_column", "token_of", "most_attended", "left_over")
    },
    **{
        f"Square.{name}": _start_of(name)
        for name in ("real_columns", "share_before", "attention_cells", "past_rows")
    },
    "Square.crop": [Rows(lambda g, x: g.square.crop(x), whole("n"))],
    "Square.legend": [
        Rows(lambda g, x: g.square.legend(x), whole("span"), 9),
        Rows(lambda g, x: g.square.legend(9, x), whole("start"), 1),
    ],
    "Square.edge_states": [
        Rows(
            lambda g, x: g.square.edge_states(x),
            refuse(
                "role: expected one of keys, values, queries, outputs, but got {}",
                *(None, 3, "key", ["keys"], Odd(), HALF),
            ),
        )
    ],
    "Square.states_of": [Rows(lambda g, x: g.square.states_of(x), ROLE)],
    "Square.written": [Rows(lambda g, x: g.square.written(x), ROLE)],
    "ServingRun.find_request": [
        Rows(lambda g, x: g.served.find_request(x), REQUEST),
        Rows(
            lambda g, x: g.served.find_request("req_0", x),
            [
                *whole("step", none=True, negative=False),
                *refuse("step {}: this recording has steps 0 to 3", -1, 4, 10**12),
            ],
            1,
        ),
    ],
    "ServingRun.read_text": [Rows(lambda g, x: g.served.read_text(x), IDS)],
    "ServingRun.open": [
        Rows(
            lambda g, x: kv.ServingRun().open(x),
            refuse(
                "list_requests: expected a function, but got {}", None, 3, "x", [], error=TypeError
            ),
        )
    ],
    "ServingStep.request": [Rows(lambda g, x: g.served_step.request(x), REQUEST)],
    "ServingStep.list_columns": [Rows(lambda g, x: g.served_step.list_columns(x), SERVED_LAYER, 1)],
    "ServingStep.find_visible": [
        Rows(lambda g, x: g.served_step.find_visible(x).tolist(), SERVED_LAYER, 1)
    ],
}
OTHER_KIND = "engine.npz is not a recording that Run.save wrote"
TABLE["Run.load"] += [
    Rows(lambda g, x: kv.Run.load(x), [Row("engine.npz", ValueError, OTHER_KIND)]),
]
OTHER_KIND = "good.npz is not .*there is no recording of an engine in it"
TABLE["ServingRun.load"] += [
    Rows(lambda g, x: kv.ServingRun.load(x), [Row("good.npz", ValueError, OTHER_KIND)]),
]
