"""Rows for the forge, the caches, the checks, the widgets and the exercises."""

import torch

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
    whole,
)

e = kv.exercises
LAYERS = whole("n_layers", 0, 10**12)
LAYER = [
    *whole("layer", -4, negative=False),
    *refuse("layer: expected a whole number of at most 2, but got {}", 3, 10**12),
]
ENTRY = refuse(
    "entry: expected keys and values, each \\(B, G, held, D\\), but got {}",
    None,
    3,
    "x",
    (),
    (1, 2),
    torch.ones(2, 3),
    Odd(),
    error=TypeError,
)
ENTRY += [
    Row(
        (torch.ones(2), torch.ones(2)),
        TypeError,
        "entry: expected keys and values.*got tuple of length 2",
    )
]
PAGE = [
    *whole("page"),
    *refuse("page: expected a whole number of at most 3, but got {}", 4, 10**12),
]
IDS = [
    *refuse("ids: expected one prompt of shape \\(1, p\\), and got", None, 3, "x", [[1, 2]], Odd()),
    *(
        Row(
            torch.zeros(*shape, dtype=torch.int64),
            ValueError,
            "ids: expected one prompt of shape \\(1, p\\), and got",
        )
        for shape in ((3,), (2, 3), (1, 0), (1, 2, 3))
    ),
    Row(
        torch.zeros(1, 3),
        ValueError,
        "ids: expected whole numbers \\(torch.int64\\), and got torch.float32",
    ),
]
TOKENS = [
    Row(torch.tensor([[1, 101]]), ValueError, "tokens of this model, 0 to 100, and got 101"),
    Row(torch.tensor([[-1]]), ValueError, "0 to 100, and got -1"),
]
MODEL = refuse(
    "model: expected a model of transformers, as load_model returns it, and got",
    None,
    3,
    "x",
    Odd(),
    Of("forge"),
    error=TypeError,
)
LOOP = refuse(
    "loop: expected a function loop\\(model, ids, n\\), and got",
    None,
    3,
    "x",
    Odd(),
    Of("model"),
    error=TypeError,
)
CLASS = refuse("expected a class, got an instance: {}", None, 3, "x", Odd(), error=TypeError)
FORGES = [*CLASS, Row(int, TypeError, "forge_class: expected a subclass of Forge, got int")]
LLAMA = refuse("expected a Llama with model_type 'llama', got {}", 3, "x", Odd(), torch.nn.Linear)
N_NEW = whole("n_new", 2)
FORGE_IDS = [
    *refuse("expected ids as a tensor of int64, got", None, 3, "x", [[1]], Odd(), error=TypeError),
    Row(torch.ones(1, 2), TypeError, "expected ids as a tensor of int64, got torch.float32"),
    *(
        Row(
            torch.zeros(*shape, dtype=torch.int64),
            ValueError,
            "expected ids \\(batch, tokens\\), 0 to 100, got",
        )
        for shape in ((3,), (1, 0), (1, 2, 3))
    ),
    Row(torch.tensor([[101]]), ValueError, "0 to 100, got \\[\\[101\\]\\]"),
    Row(torch.tensor([[-1]]), ValueError, "0 to 100, got \\[\\[-1\\]\\]"),
    Row(
        torch.zeros(1, 98, dtype=torch.int64), ValueError, "at most 97 tokens, held and fed, got 98"
    ),
]
CACHE = [
    *refuse("expected a KVCache or None, got", 3, "x", [1], Odd(), error=TypeError),
    Row(Of("short_cache"), ValueError, "expected a cache of 4 layers, got 3"),
]


MASK = "expected t = pos_end - pos_start, got"
MASK_ROWS = [*whole("t", negative=False), *refuse(f"{MASK} {{}}, 1 and 3", 0, -1, 3)]
MASK_START = [*whole("pos_start", negative=False), *refuse(f"{MASK} 2, {{}} and 3", 0, -1)]


def _cache(make):
    """Rows for `get` and `update` of a cache of three layers."""
    update = [Rows(lambda g, x: make().update(x, g.entry), LAYER)]
    return {"get": [Rows(lambda g, x: make().get(x), LAYER, 1)], "update": update}


def _paged():
    return kv.PagedKVCache(3, page_size=4, n_pages=8)


def _full(g):
    cache = _paged()
    cache.update(0, g.entry)
    return cache


STEPS_OF_FOUR = [
    *whole("step", negative=False),
    *refuse("step {}: this recording has steps 0 to 3", 4, -1, 10**12),
]
LAYER_OF = [
    *whole("layer", none=True, negative=False),
    *refuse("layer {}: attention was kept for layers 0 to 2", 3, -1),
]
HEAD_OF = [
    *whole("head", none=True, negative=False),
    *refuse("head {}: layer 0 has heads 0 to 5", 6, -1),
]
SEQUENCE_OF = [
    *whole("sequence", negative=False),
    *refuse("sequence {}: this recording has sequences 0 only", 1, -1),
]
RUN = [
    *refuse(
        "run: expected a recording, such as .*got",
        None,
        3,
        "x",
        [1],
        Odd(),
        Of("model"),
        error=TypeError,
    ),
    Row(Of("empty"), ValueError, "run: this recording has no steps"),
    Row(Of("counts"), ValueError, "run: attention was not kept"),
]
UNCACHED = [
    *refuse(
        "uncached: expected a recording, such as .*got",
        3,
        "x",
        Odd(),
        Of("served"),
        error=TypeError,
    ),
    Row(Of("empty"), ValueError, "uncached: this recording has no steps"),
    Row(Of("other"), ValueError, "the prompts differ"),
    Row(Of("alike"), ValueError, "of the same model: run has layers with 6 heads, and uncached 3"),
    Row(Of("run"), ValueError, "uncached: expected a recording without a cache"),
]
FRAMES = [
    *several("steps"),
    *(
        Row([value], ValueError, "steps: expected some of 0 to 3, but got")
        for value in (4, -1, "a", None, 0.5, True)
    ),
    Row([], ValueError, "steps: expected some of 0 to 3, but got \\[\\]"),
]
SECONDS = refuse(
    "seconds: expected 0.02 to 60 for each frame, but got {}",
    None,
    0,
    61,
    -1,
    True,
    "1",
    NAN,
    INF,
    Odd(),
    HUGE,
)
VIEW = refuse(
    "view: expected one of 'pages', 'schedule', 'pass', but got {}", 3, "x", ["pages"], Odd()
)
HEADS = [
    *refuse("heads: expected \\{layer: heads\\}, but got {}", 3, "x", [1], Odd()),
    Row({9: [0]}, ValueError, "layer 9: "),
    Row({0: [9]}, ValueError, "head 9: "),
    Row({"a": [0]}, ValueError, "layer: expected a whole number.*'a'"),
    Row({0: "ab"}, ValueError, "head: expected a whole number.*'a'"),
]


def _told(*values):
    """Values that a check of an exercise answers with feedback, not with an error."""
    return [
        Row(value, None, "")
        for value in values or (None, 3, "x", [1], Odd(), int, len, lambda: 1, lambda *_: "x")
    ]


FUNCTIONS = {
    "causal_mask": lambda g, x: e.causal_mask(x),
    "fits": lambda g, x: e.fits(x),
    "is_rounding": lambda g, x: e.is_rounding(x),
    "move": lambda g, x: e.move(x),
    "positions_from_mask": lambda g, x: e.positions_from_mask(x),
    "price": lambda g, x: e.price(x),
    "share_used": lambda g, x: e.share_used(x),
    "edits": lambda g, x: e.edits(x),
    "repair": lambda g, x: e.repair(x),
}
PROMPT = [*IDS, *TOKENS]
BASE = refuse(
    "expected a tensor \\(layers, positions, numbers\\), but got {}",
    None,
    3,
    "x",
    [1],
    Odd(),
    torch.ones(2, 3),
    torch.ones(2, 1, 3),
    torch.ones(2, 3, 4, dtype=torch.int64),
)
SIZES = [
    *several("sizes"),
    Row((3, 1), ValueError, "sizes: expected some that add up to 6, but got \\(3, 1\\)"),
    *(
        Row((3, 1, value), ValueError, "sizes: expected a whole number")
        for value in (0, -1, "a", True, 2.0)
    ),
]


def _loop(model, ids, n):
    return model.generate(ids, max_new_tokens=n, do_sample=False)


TABLE = {
    "KVCache": [Rows(lambda g, x: kv.KVCache(x), LAYERS)],
    **{f"KVCache.{name}": rows for name, rows in _cache(lambda: kv.KVCache(3)).items()},
    "causal_mask": [
        Rows(lambda g, x: kv.causal_mask(x, 1, 3), MASK_ROWS),
        Rows(lambda g, x: kv.causal_mask(2, x, 3), MASK_START),
        Rows(lambda g, x: kv.causal_mask(2, 1, x), whole("pos_end", negative=False)),
        Rows(
            lambda g, x: kv.causal_mask(2, 1, 3, x),
            refuse("device: expected torch's, but got {}", "x", -1, 1.5, [1], Odd(), HALF),
        ),
    ],
    "Forge": [
        Rows(
            lambda g, x: kv.Forge(x),
            refuse(
                "c: expected a ForgeConfig, but got {}", None, 3, "x", {}, Odd(), error=TypeError
            ),
        )
    ],
    "Forge.small": [Rows(lambda g, x: kv.Forge.small(x).config, whole("seed", negative=False), 3)],
    "Forge.from_pretrained": [
        Rows(
            lambda g, x: kv.Forge.from_pretrained(x),
            [
                *LLAMA,
                Row(None, ValueError, "expected a Llama.*got None"),
                Row(
                    Of("other_model"),
                    ValueError,
                    "expected a Llama with model_type 'llama', got GPT2LMHeadModel",
                ),
            ],
        )
    ],
    "Forge.forward": [
        Rows(lambda g, x: g.forge(x), FORGE_IDS),
        Rows(lambda g, x: g.forge(g.ids, x), CACHE),
    ],
    "PagePool": [
        Rows(lambda g, x: kv.PagePool(x), whole("n_pages", 0, 10**12)),
        Rows(lambda g, x: kv.PagePool(4, x), whole("page_size", 0)),
    ],
    "PagePool.take": [
        Rows(
            lambda g, x: kv.PagePool(4).take(x),
            [
                *whole("n"),
                Row(5, RuntimeError, "no room: this takes 5 more pages, and 4 of 4 are free"),
            ],
            1,
        )
    ],
    "PagePool.share": [Rows(lambda g, x: kv.PagePool(4).share(x), PAGE, 1)],
    "PagePool.give_back": [Rows(lambda g, x: kv.PagePool(4).give_back(x), PAGE, 1)],
    "PagePool.fit": [
        Rows(lambda g, x: kv.PagePool(4).fit(x, torch.ones(2, 1, 1, 1, 1)), whole("n_layers", 0)),
        Rows(
            lambda g, x: kv.PagePool(4).fit(1, x),
            refuse(
                "columns: expected a tensor \\(2, B, G, tokens, D\\), but got {}",
                None,
                3,
                "x",
                [1],
                Odd(),
                torch.ones(2, 3),
                error=TypeError,
            ),
        ),
    ],
    "PagedKVCache": [
        Rows(lambda g, x: kv.PagedKVCache(x), LAYERS),
        Rows(lambda g, x: kv.PagedKVCache(3, x), whole("page_size", 0)),
        Rows(lambda g, x: kv.PagedKVCache(3, 4, x), whole("n_pages", 0, 10**12)),
        Rows(
            lambda g, x: kv.PagedKVCache(3, pool=x),
            refuse(
                "pool: expected a PagePool, but got {}",
                3,
                "x",
                [1],
                Odd(),
                kv.PagePool,
                error=TypeError,
            ),
        ),
    ],
    **{f"PagedKVCache.{name}": rows for name, rows in _cache(_paged).items()},
    "PagedKVCache.fork": [
        Rows(
            lambda g, x: _full(g).fork(x),
            [
                *whole("tokens", none=True),
                Row(4, ValueError, "tokens: expected at most the 3 held, got 4"),
            ],
            2,
        )
    ],
    "PagedKVCache.crop": [
        Rows(
            lambda g, x: _full(g).crop(x),
            [
                *whole("n", -4, negative=False),
                *refuse("n: expected 0 or a negative number, of tokens .*, got {}", 1, 10**12),
            ],
            -1,
        ),
    ],
    "PagedKVCache.locate": [
        Rows(
            lambda g, x: _full(g).locate(x),
            refuse(
                "positions: expected a tensor of positions, 0 to 3, but got {}",
                None,
                3,
                "x",
                [0],
                Odd(),
                torch.tensor([9]),
                torch.tensor([-1]),
                torch.tensor([0.5]),
            ),
        )
    ],
    "PagedKVCache.make_room": [
        Rows(lambda g, x: _full(g).make_room(x, 9), whole("held")),
        Rows(lambda g, x: _full(g).make_room(3, x), whole("end")),
    ],
    "check": [
        Rows(lambda g, x: kv.check(x, g.model, g.ids, 4), LOOP),
        Rows(lambda g, x: kv.check(_loop, x, g.ids, 4), MODEL),
        Rows(lambda g, x: kv.check(_loop, g.model, x, 4), PROMPT),
        Rows(lambda g, x: kv.check(_loop, g.model, g.ids, x), whole("n_new", 2, 10**12)),
        Rows(
            lambda g, x: kv.check(_loop, g.model, g.ids, 4, then=x),
            [row._replace(says=row.says.replace("ids:", "then:")) for row in PROMPT[1:]],
        ),
        Rows(
            lambda g, x: kv.check(_loop, g.model, g.ids, 4, tokenizer=x),
            refuse(
                "tokenizer: expected one of transformers.*but got {}",
                3,
                "x",
                b"x",
                Odd(),
                int,
                error=TypeError,
            ),
        ),
    ],
    **{
        name: [
            Rows(lambda g, x, check=check: check(x), CLASS),
            Rows(lambda g, x, check=check: check(forge_class=x), FORGES),
            Rows(lambda g, x, check=check: check(model=x), LLAMA),
            Rows(
                lambda g, x, check=check: check(ids=x),
                [row for row in IDS if row.value is not None],
            ),
            Rows(
                lambda g, x, check=check: check(n_new=x),
                [
                    *N_NEW,
                    Row(
                        93,
                        ValueError,
                        "n_new: with 93 new tokens after 6, expected at most 97 tokens",
                    ),
                ],
            ),
        ]
        for name, check in {"check_cache": kv.check_cache, "logit_gap": kv.logit_gap}.items()
    },
    "stepper": [
        Rows(lambda g, x: kv.stepper(x), RUN),
        Rows(lambda g, x: kv.stepper(g.run, x), UNCACHED),
        Rows(lambda g, x: kv.stepper(g.run, step=x), STEPS_OF_FOUR),
        Rows(lambda g, x: kv.stepper(g.run, layer=x), LAYER_OF),
        Rows(lambda g, x: kv.stepper(g.run, head=x), HEAD_OF),
        Rows(lambda g, x: kv.stepper(g.run, sequence=x), SEQUENCE_OF),
        Rows(
            lambda g, x: kv.stepper(g.run, beside=x),
            [*flag("beside"), Row(True, ValueError, "beside=True: expected a second recording")],
        ),
        Rows(
            lambda g, x: kv.stepper(g.run, view=x),
            refuse(
                "view: expected only with a recording made by kv.record_serving, but got {}",
                3,
                "pages",
                [1],
                Odd(),
            ),
        ),
        Rows(lambda g, x: kv.stepper(g.served, view=x), VIEW),
        Rows(lambda g, x: kv.stepper(g.served, step=x), STEPS_OF_FOUR),
        Rows(
            lambda g, x: kv.stepper(g.served, head=x),
            [*whole("head", none=True), *refuse("head {}: layer 0 has heads 0 to 5", 6)],
        ),
        Rows(
            lambda g, x: kv.stepper(g.served, layer=x),
            [*whole("layer", none=True), *refuse("layer {}: attention was kept", 3)],
        ),
    ],
    "Stepper.save": [
        Rows(lambda g, x: g.walk.save(x), file_name(".html")),
        Rows(lambda g, x: g.walk.save("x.html", x), HEADS),
    ],
    "ServingStepper.save": [Rows(lambda g, x: g.served_walk.save(x), file_name(".html"))],
    "animate": [
        Rows(lambda g, x: kv.animate(x), RUN),
        Rows(lambda g, x: kv.animate(g.run, x), UNCACHED),
        Rows(lambda g, x: kv.animate(g.run, steps=x), FRAMES),
        Rows(lambda g, x: kv.animate(g.run, layer=x), LAYER_OF),
        Rows(lambda g, x: kv.animate(g.run, head=x), HEAD_OF),
        Rows(lambda g, x: kv.animate(g.run, sequence=x), SEQUENCE_OF),
        Rows(lambda g, x: kv.animate(g.run, seconds=x), SECONDS),
    ],
    "Animation.save": [Rows(lambda g, x: g.animation.save(x), file_name(".gif"))],
    "memory_panel": [
        Rows(
            lambda g, x: kv.memory_panel(x),
            refuse(
                "expected a config, such as model.config, got",
                None,
                3,
                "x",
                [1],
                Odd(),
                error=TypeError,
            ),
        ),
        Rows(lambda g, x: kv.memory_panel(g.config, weights=x), number("weights", 0, none=True)),
        Rows(lambda g, x: kv.memory_panel(g.config, tokens=x), whole("tokens", 10**8)),
        Rows(lambda g, x: kv.memory_panel(g.config, batch_size=x), whole("batch_size", 0, 10**8)),
        Rows(
            lambda g, x: kv.memory_panel(g.config, precision=x),
            refuse(
                "precision: expected one of 'float32', .*but got {}",
                None,
                3,
                "x",
                ["float32"],
                Odd(),
            ),
        ),
    ],
    "export_page": [
        Rows(
            lambda g, x: kv.export_page(x, "pages"),
            [
                *refuse(
                    "notebook: expected the name of a file, but got {}",
                    None,
                    3,
                    [1],
                    Odd(),
                    error=TypeError,
                ),
                Row("no-such.ipynb", FileNotFoundError, "no-such.ipynb"),
                Row("folder", IsADirectoryError, "folder"),
                Row("text.npz", ValueError, "text.npz: expected a notebook"),
            ],
        ),
        Rows(
            lambda g, x: kv.export_page(g.notebook, x),
            refuse(
                "folder: expected the name of a folder, but got {}",
                None,
                3,
                [1],
                Odd(),
                error=TypeError,
            ),
        ),
        Rows(
            lambda g, x: kv.export_page(g.notebook, "pages", links=x),
            [
                *refuse("links: expected \\{text: address\\}, but got {}", 3, "x", [1], Odd()),
                Row(
                    {"a": 3},
                    ValueError,
                    "links: expected \\{text: address\\}, but got \\{'a': 3\\}",
                ),
            ],
        ),
    ],
    **{f"exercises.{name}": [Rows(call, _told())] for name, call in FUNCTIONS.items()},
    "exercises.cache": [
        Rows(lambda g, x: e.cache(x), CLASS),
        Rows(lambda g, x: e.cache(x), _told(int)),
    ],
    "exercises.forward": [Rows(lambda g, x: e.forward(x), FORGES)],
    "exercises.shared_pages": [
        Rows(lambda g, x: e.shared_pages(x), CLASS),
        Rows(lambda g, x: e.shared_pages(x), _told(int)),
    ],
    "exercises.diagnose": [
        Rows(
            lambda g, x: e.diagnose(x),
            refuse(
                "diagnose: expected answers for X, Y and Z, got", None, 3, "x", [1], {"X": 1}, Odd()
            ),
        ),
        Rows(lambda g, x: e.diagnose({"X": x, "Y": x, "Z": x}), _told()),
    ],
    "exercises.fixed": [
        Rows(
            lambda g, x: e.fixed(**x),
            [Row({"X": 1}, ValueError, "fixed: expected X=..., Y=... and Z=..., got \\['X'\\]")],
        ),
        Rows(lambda g, x: e.fixed(X=x, Y=x, Z=x), _told()),
    ],
    "exercises.describe": [
        Rows(
            lambda g, x: e.describe(len, x),
            refuse(
                "expected a recording made by kv.record, but got {}",
                None,
                3,
                "x",
                [1],
                Odd(),
                error=TypeError,
            ),
        ),
        Rows(lambda g, x: e.describe(x, g.run), _told()),
    ],
    "exercises.chunked_prefill": [
        Rows(lambda g, x: e.chunked_prefill(x, g.forge, g.ids), _told()),
        Rows(
            lambda g, x: e.chunked_prefill(len, x, g.ids),
            refuse(
                "forge: expected a Forge, but got {}",
                None,
                3,
                "x",
                Odd(),
                kv.Forge,
                error=TypeError,
            ),
        ),
        Rows(lambda g, x: e.chunked_prefill(len, g.forge, x), IDS),
        Rows(lambda g, x: e.chunked_prefill(len, g.forge, g.ids, x), SIZES),
    ],
    "exercises.keep_columns": [
        Rows(
            lambda g, x: e.keep_columns(lambda *_: 1, x, None),
            [*LLAMA, Row(None, ValueError, "expected a Llama.*got None")],
        ),
        Rows(
            lambda g, x: e.keep_columns(lambda *_: 1, g.tied, x),
            refuse(
                "tokenizer: expected the one that load_model returned, but got {}",
                None,
                3,
                "x",
                Odd(),
                int,
                error=TypeError,
            ),
        ),
    ],
    "exercises.prediction": [
        Rows(
            lambda g, x: e.prediction(x, g.model, g.ids, 2),
            _told(None, 3, "x", Odd(), lambda *_: "x", lambda *_: NAN),
        ),
        Rows(lambda g, x: e.prediction(len, x, g.ids), MODEL),
        Rows(lambda g, x: e.prediction(len, g.model, x), PROMPT),
        Rows(lambda g, x: e.prediction(len, g.model, g.ids, x), whole("n", 0, 10**12)),
        Rows(lambda g, x: e.prediction(len, g.model, g.ids, again=x), flag("again")),
        Rows(
            lambda g, x: e.prediction(len, g.model, g.ids, clock=x),
            refuse("clock: expected a function, but got {}", None, 3, "x", Odd(), error=TypeError),
        ),
    ],
    "exercises.quantise": [
        Rows(
            lambda g, x: e.quantise(x, g.tied, g.long, to_beat=1),
            _told(None, 3, "x", Odd(), lambda *_: "x"),
        ),
        Rows(
            lambda g, x: e.quantise(len, x, g.long, to_beat=1),
            MODEL,
        ),
        Rows(
            lambda g, x: e.quantise(len, g.tied, x, to_beat=1),
            [
                *IDS,
                Row(
                    torch.zeros(1, 6, dtype=torch.int64),
                    ValueError,
                    "ids: expected \\(1, over 64\\), but got \\(1, 6\\)",
                ),
            ],
        ),
        Rows(lambda g, x: e.quantise(len, g.tied, g.long, to_beat=x), number("to_beat", 0)),
    ],
    "exercises.reusable": [
        Rows(lambda g, x: e.reusable(x, g.base, g.base, g.base), _told()),
        Rows(lambda g, x: e.reusable(len, x, g.base, g.base), BASE),
        Rows(lambda g, x: e.reusable(len, g.base, x, g.base), BASE),
        Rows(
            lambda g, x: e.reusable(len, g.base, g.base, x),
            [
                *BASE,
                Row(
                    torch.ones(3, 3, 4),
                    ValueError,
                    "last: expected \\(2, 3, 4\\) as base, but got \\(3, 3, 4\\)",
                ),
            ],
        ),
    ],
    "exercises.scheduler": [
        Rows(lambda g, x: e.scheduler(x), _told()),
        Rows(
            lambda g, x: e.scheduler(len, x, 8),
            refuse(
                "served: expected a recording of an engine, but got {}",
                3,
                "x",
                [1],
                Odd(),
                Of("run"),
                error=TypeError,
            ),
        ),
        Rows(lambda g, x: e.scheduler(len, g.served, x), whole("budget.*", 0, 1)),
        Rows(
            lambda g, x: e.scheduler(len, None, x),
            refuse("budget: expected only with a recording, but got {}", 3, "x"),
        ),
    ],
    "exercises.score_last_row": [
        Rows(lambda g, x: e.score_last_row(x, g.model, g.ids, 3), _told()),
        Rows(lambda g, x: e.score_last_row(len, x, g.ids), MODEL),
        Rows(lambda g, x: e.score_last_row(len, g.model, x), PROMPT),
        Rows(lambda g, x: e.score_last_row(len, g.model, g.ids, x), whole("n", 0, 10**12)),
    ],
    "exercises.next_turn": [
        Rows(
            lambda g, x: e.next_turn(x, g.model, g.ids),
            _told(None, 3, "x", Odd(), lambda *_: "x", lambda model, cache, held, ids: model(ids)),
        ),
        Rows(lambda g, x: e.next_turn(len, x, g.ids), MODEL),
        Rows(lambda g, x: e.next_turn(len, g.model, x), PROMPT),
        Rows(
            lambda g, x: e.next_turn(len, g.model, g.ids[:, :x]),
            [Row(5, ValueError, "ids: expected at least 6 tokens, and got 5")],
        ),
    ],
    "exercises.generate_with_guesses": [
        Rows(
            lambda g, x: e.generate_with_guesses(x, g.model, g.ids, 3, 2),
            _told(None, 3, "x", Odd(), lambda *_: "x", lambda model, ids, n, k: ids),
        ),
        Rows(lambda g, x: e.generate_with_guesses(len, x, g.ids), MODEL),
        Rows(lambda g, x: e.generate_with_guesses(len, g.model, x), PROMPT),
        Rows(lambda g, x: e.generate_with_guesses(len, g.model, g.ids, x), whole("n", 2, 10**12)),
        Rows(
            lambda g, x: e.generate_with_guesses(len, g.model, g.ids, 3, x),
            whole("k", 1, 10**12),
        ),
    ],
    "exercises.two_turns": [
        Rows(
            lambda g, x: e.two_turns(x, g.model, g.ids, g.ids, 2),
            _told(None, 3, "x", Odd(), lambda *_: "x"),
        ),
        Rows(lambda g, x: e.two_turns(len, x, g.ids, g.ids), MODEL),
        Rows(lambda g, x: e.two_turns(len, g.model, x, g.ids), PROMPT),
        Rows(lambda g, x: e.two_turns(len, g.model, g.ids, x), PROMPT),
        Rows(lambda g, x: e.two_turns(len, g.model, g.ids, g.ids, x), whole("n_new", 0, 10**12)),
    ],
}
TABLE["PagedKVCache.update"] += [Rows(lambda g, x: _paged().update(0, x), ENTRY)]
TABLE["logit_gap"] += [
    Rows(
        lambda g, x: kv.logit_gap(dtype=x),
        refuse(
            "dtype: expected one for floats, such as torch.float64, got {}",
            None,
            3,
            "float32",
            Odd(),
            float,
            error=TypeError,
        ),
    )
]
