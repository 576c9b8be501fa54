"""Any prompt is drawn and said as typed. Invisible characters are written out, and nothing is
taken for a page's own markup."""

import html.parser
import re

import numpy as np
import pytest
import torch
from small import llama, prompt

import kvviz as kv
from kvviz import tokens
from kvviz.drawing.fonts import make_label
from kvviz.drawing.layout import WIDEST
from kvviz.drawing.marks import find_cells

pytestmark = pytest.mark.filterwarnings("error")
PROMPTS = {
    "dollars": "costs $5 and $6",
    "empty formula": "$$",
    "formula": " $a_$ ",
    "TeX": r"\frac{a}{b}",
    "under": "under_score __dunder__",
    "curly": "{curly} {{ mustache }}",
    "percent": "%s %d",
    "controls": "\t\n\r\0\x1b[31m\x07\x85",
    "CJK": "语言 モデル 한글",
    "Arabic": "مرحبا ١٢",
    "Hebrew": "שלום",
    "override": "\u202eevil\u202c \u2067x\u2069",
    "marks": "\u0301 e\u0301\u0323\u20dd\u0489",
    "emoji": "👩\u200d👩\u200d👧 🇨🇭 ❤\ufe0f",
    "the cat the": "the cat the",
    "long": "abcdefghij" * 40,
    "zero width": "a\u200bb\u2060\ufeff\xad\u034f\u3164\u2800\xa0",
    "tag": "<img src=x onerror=alert(1)>",
    "script": "</script><script>alert(1)</script>",
    "entity": "&amp;",
    "quotes": "\"'`",
    "no characters": "\ufdd0\uffff\U0010ffff",
    "address": "javascript:alert(1)",
}
# What a page could take for its own markup, a formula or a writing direction.
MARKS = ["dollars", "formula", "curly", "controls", "override", "Arabic", "zero width", "tag"]
MARKS += ["script", "entity", "quotes", "address"]
UNSEEN = "\t\n\r\0\x1b\x07\x85\u202e\u202c\u2067\u200d\ufe0f\u200b\u2060\ufeff\xad\u034f\u3164"
UNSEEN += "\u2800\xa0\ufdd0\uffff\U0010ffff"
TAGS = {"img", "table", "caption", "thead", "tbody", "tr", "th", "td"}


class Pieces:
    """Stands in for a tokenizer: a token's id is its index in `pieces`."""

    def __init__(self, pieces, written=()):
        self.pieces, self.written = pieces, dict(written)

    def decode(self, ids, clean_up_tokenization_spaces=None):
        return "".join(self.pieces[token] for token in ids)

    def convert_ids_to_tokens(self, token):
        return self.written.get(token)


class Page(html.parser.HTMLParser):
    """How a browser would read some HTML: its tags, their attributes and its words."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.words = [], []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data):
        self.words.append(data)


@pytest.fixture(scope="module")
def model():
    sizes = dict(hidden_size=22, num_attention_heads=2, num_key_value_heads=1)
    return llama(n_positions=2000, num_hidden_layers=2, **sizes)


@torch.no_grad()
def recorded(model, pieces):
    """Record all but the last token at once, then the last one."""
    known = list(dict.fromkeys(pieces))
    ids = torch.tensor([[known.index(piece) for piece in pieces]])
    with kv.record(model, Pieces(known), layers=[1]) as run:
        out = model(ids[:, :-1], use_cache=True)
        model(ids[:, -1:], cache=out.cache, use_cache=True)
    return run


def split(words):
    return re.findall(r" ?\w+|.", words, re.DOTALL)


def read_back(shown):
    """The original text of something drawn or said."""
    short = {"n": "\n", "t": "\t", "r": "\r", "0": "\0"}
    written = r"\\(?:x(\w{2})|u([0-9a-f]{4})|U([0-9a-f]{8})|([ntr0]))"
    shown = re.sub("[◌\u2068\u2069]", "", shown).replace("␣", " ")
    return re.sub(
        written, lambda e: short[e[4]] if e[4] else chr(int(e[1] or e[2] or e[3], 16)), shown
    )


def said_of(sentence):
    """The newest token, as the sentence puts it."""
    return re.match(".*; \u2068?'(.*)'\u2069? attends (?:most )?to", sentence)[1]


def texts(picture):
    return {a.get_gid(): a.get_text() for ax in picture.figure.axes for a in ax.texts}


def pictures(run):
    step = len(run) - 1
    yield kv.draw_step(run, step=step, layer=1, head=0)
    yield kv.draw_side_by_side(run, run, step=(0, step), layer=1, head=0)
    yield kv.draw_filmstrip(run, layer=1)


@pytest.mark.parametrize("name", PROMPTS)
def test_any_prompt_is_drawn_and_said_as_typed(model, name, caplog):
    whole = PROMPTS[name]
    pieces = [*split(whole), whole]
    picture = kv.draw_step(recorded(model, pieces), step=1, layer=1, head=0)
    assert picture.png(sharpness=1)
    assert read_back(said_of(picture.sentence)) == whole
    assert not set(UNSEEN) & set(picture.sentence)
    drawn = texts(picture)
    for j, piece in enumerate(pieces):
        full = make_label(piece)[0]
        assert read_back(full) == piece.removeprefix(" " if piece[:2].strip() else "")
        assert not set(UNSEEN) & set(full)
        label = drawn[f"column:{j}"]
        assert label == full or full.startswith(label.removesuffix("…")) and label.endswith("…")
    column = kv.draw_column(np.ones((2, len(pieces))), tokens=pieces, title=tokens.visible(whole))
    assert column.png(sharpness=1) and column.sentence.startswith(tokens.visible(whole))
    assert not caplog.records


@pytest.mark.parametrize("name", MARKS)
def test_no_prompt_becomes_part_of_the_page(model, name):
    whole = PROMPTS[name]
    run = recorded(model, ["x", whole, "y", whole])
    walk = kv.stepper(run, step=1, layer=1, head=0)
    assert walk.frame and read_back(said_of(walk.sentence)) == whole
    shown, _ = walk._repr_mimebundle_()
    assert shown["text/plain"] == walk.sentence
    both = kv.draw_side_by_side(run, run, step=(0, 1), layer=1, head=0)
    for page, sentence in (
        (shown["text/html"], kv.draw_filmstrip(run, layer=1).sentence),
        (both._repr_mimebundle_()[0]["text/html"], both.sentence),
    ):
        assert read_back(said_of(sentence)) == whole and not set(UNSEEN) & set(sentence)
        image, *rest = Page(page).tags
        assert image[0] == "img" and image[1].keys() == {"alt", "src", "width", "style"}
        assert image[1]["alt"] == sentence
        assert {tag for tag, _ in rest} <= {"p"}
        assert "".join(Page(page).words).strip() in ("", "Run this cell to step through it.")
    table = Page(run._repr_html_())
    assert {tag for tag, _ in table.tags} <= TAGS
    assert all(attrs in ({}, {"scope": "col"}) for _, attrs in table.tags)
    newest = table.words[-1]
    assert read_back(newest.strip("\u2068\u2069")[1:-1]) == whole
    assert newest in repr(run)
    assert not set(UNSEEN) & set(newest)


@pytest.mark.parametrize(
    ("decoded", "written", "shown"),
    [
        ("\ufffd", "ðŁ", "<0xF0><0x9F>"),  # as byte-level tokenizers write bytes
        ("\ufffd", "<0xE8>", "<0xE8>"),  # as SentencePiece writes a byte
        ("\ufffd", None, "0"),
        ("<0xF0>", None, "<0xF0>"),
    ],
)
def test_bytes_of_a_split_character_are_given_as_bytes(decoded, written, shown):
    assert tokens.piece(Pieces([decoded], {0: written}), 0) == shown


SPLIT = {
    "one character, byte level": (["a", "<0xE8><0xAF>", "<0xAD>"], ["a", "语 1/2", "语 2/2"]),
    "three pieces": (["<0xE8>", "<0xAF>", "<0xAD>"], ["语 1/3", "语 2/3", "语 3/3"]),
    "after a space": (["<0x20><0xF0><0x9F>", "<0x98>", "<0x80>"], [" 😀 1/3", "😀 2/3", "😀 3/3"]),
    "not complete": (["<0xE8>", "<0xAF>"], ["<0xE8>", "<0xAF>"]),
    "cut at its beginning": (["<0xAF>", "<0xAD>", "b"], ["<0xAF>", "<0xAD>", "b"]),
    "interrupted": (["<0xE8>", "b", "<0xAF><0xAD>"], ["<0xE8>", "b", "<0xAF><0xAD>"]),
    "two characters": (["<0xC3>", "<0xA9><0xC3>", "<0xA8>"], ["é 1/2", "é 2/2+è 1/2", "è 2/2"]),
    "and a whole one": (["<0xC3><0xA9><0xC3>", "<0xA8>"], ["éè 1/2", "è 2/2"]),
    "one piece of bytes": (["<0xE8>"], ["<0xE8>"]),
}


@pytest.mark.parametrize("name", SPLIT)
def test_pieces_of_a_complete_character_show_it_with_their_number(name):
    pieces, shown = SPLIT[name]
    assert tokens.join_pieces(pieces) == shown


class Bytes:
    """Stands in for a tokenizer whose tokens are bytes, as either kind of tokenizer writes them."""

    def __init__(self, table):
        self.written = dict(enumerate(table))

    def decode(self, ids, clean_up_tokenization_spaces=None):
        return "".join("\ufffd" if self.written[i] != "a" else "a" for i in ids)

    def convert_ids_to_tokens(self, token):
        return self.written[token]


@pytest.mark.parametrize(
    "table", [["a", "è", "¯", "Ń"], ["a", "<0xE8>", "<0xAF>", "<0xAD>"]], ids=["BPE", "fallback"]
)
def test_a_character_shows_in_picture_sentence_page_and_table_once_it_is_complete(
    model, table, tmp_path
):
    with kv.record(model, Bytes(table), layers=[1]) as run, torch.no_grad():
        out = model(torch.tensor([[0, 1]]), use_cache=True)
        for token in (2, 3, 0):
            out = model(torch.tensor([[token]]), cache=out.cache, use_cache=True)
    for each in (run, kv.Run.load(run.save(tmp_path / "run.npz"))):
        early, complete = each[1].square(1, 0), each[2].square(1, 0)
        assert early.tokens == ("a", "<0xE8>", "<0xAF>")
        assert complete.tokens == ("a", "语 1/3", "语 2/3", "语 3/3")
        picture = kv.draw_step(each, step=2, layer=1)
        assert "'语 3/3' attends" in picture.sentence and picture.png(sharpness=1)
        newest = texts(picture)["column:3"]
        assert newest == "语 3/3" or newest.endswith(" 3/3")  # escaped where no font has it
        table_lines = repr(each).splitlines()
        assert table_lines[2].endswith('"<0xAF>"') and table_lines[3].endswith('"语 3/3"')
    walk = kv.stepper(run, step=2, layer=1, head=0)
    assert "语 3/3" in walk.sentence and "<0x" not in walk.sentence


@torch.no_grad()
def test_pieces_are_not_taken_for_values_that_moved(model):
    """A value's token is its key's, though what stands beside it differs."""
    run = recorded(model, ["<0xE8>", "<0xAF>", "<0xAD>", "b"])
    for step in run:
        assert step.square(1, 0).moved_values == []


# --- short and long -------------------------------------------------------------------------


def upright(picture, what):
    return [
        a for ax in picture.figure.axes for a in ax.texts if (a.get_gid() or "").find(what) == 0
    ]


@pytest.mark.parametrize("n", [1, 300, 2000])
def test_a_long_prompt_shows_a_window_around_the_newest_and_says_what_is_left_out(model, n):
    with kv.record(model, layers=[1]) as run, torch.no_grad():
        model(prompt(n))
    for picture, most in zip(pictures(run), (WIDEST, WIDEST // 2, WIDEST // 4), strict=True):
        said = f"columns 0 to {n - most - 1} left out, where the newest row puts "
        assert (said in picture.sentence) == (n > most)
        labels = [int(a.get_gid()[7:]) for a in upright(picture, "column:")]
        assert max(labels) == n - 1 and min(labels) >= n - most
        assert picture.width <= 1200 and picture.height <= 1200
    assert kv.stepper(run).frame


@pytest.mark.parametrize("n", [1, 40, 300, 2000])
def test_a_long_column_shows_the_newest_positions_and_says_what_is_left_out(n):
    change = np.zeros((3, n))
    change[1, -1] = 1
    picture = kv.draw_column(change, tokens=["word"] * n, title="t")
    assert picture.png() and picture.width <= 1200
    assert f"1 of {3 * n} entries moved" in picture.sentence
    assert f"layer 1: {n - 1}" in picture.sentence
    drawn = find_cells(picture.figure.axes[1].collections)
    shown = len({place for _, (_, place) in drawn})
    first = n - shown
    assert drawn["column", (1, shown - 1)] == "moved 4"
    assert (f"positions 0 to {first - 1} are not drawn" in picture.sentence) == (first > 0)
    drawn = [a.get_text() for a in upright(picture, "")]
    assert any("not drawn" in words for words in drawn) == (first > 0)
    words = [a for a in upright(picture, "") if a.get_text() == "word"]
    x = sorted(a.get_window_extent().x0 for a in words)
    assert len(words) > 20 or n == 1
    assert n == 1 or min(np.diff(x)) > 10  # without overlaps
