"""A picture's sentence says what is drawn; it's shown once and leaves nothing behind."""

import base64
import html
import io
import json
import re
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path

import matplotlib as mpl
import numpy as np
import pytest
import small
import torch
from IPython.core.interactiveshell import InteractiveShell
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image
from squares import (
    Run,
    chunk,
    decode,
    guesses,
    keys_in_front,
    padded,
    plain,
    prefill,
    square,
    static,
    window,
)
from test_colours import check_contrast

import kvviz as kv
from kvviz.drawing import style
from kvviz.drawing.axes import write_number
from kvviz.drawing.marks import find_cells
from kvviz.drawing.notes import write_title
from kvviz.drawing.picture import Picture
from kvviz.drawing.sentences import describe_square, list_numbers
from tools import pictures

BASELINE = Path(__file__).with_name("baseline")
LOOKED_AT = 96  # percent of attention in the sentence of the course's first picture


def object_share(n=10):
    shares = np.tril(np.full((n, n), 0.04 / (n - 1)))
    shares[n - 1, 8] = 0.96
    return shares


# --- the sentence ---------------------------------------------------------------------------


def test_sentence_of_a_decode_step():
    assert repr(kv.draw_step(decode(10, shares=object_share()))) == (
        "step 4, layer 13, head 8: 1 row attends to 10 columns; "
        "9 keys and 9 values read from the cache, 1 of each written; "
        "' at' attends most to ' object', 96%"
    )


def test_sentence_of_the_plain_loop():
    assert describe_square(plain(10, shares=object_share())) == (
        "step 4, layer 13, head 8: 10 rows attend to 10 columns; 10 keys and 10 values computed, "
        "9 of them recomputed; ' at' attends most to ' object', 96%"
    )


@pytest.mark.parametrize(
    ("drawn", "says"),
    [
        (prefill(), "7 rows attend to 7 columns; 7 keys and 7 values written; "),
        (
            decode(2),
            "1 row attends to 2 columns; 1 key and 1 value read from the cache, 1 of each ",
        ),
        (
            chunk(),
            "3 rows attend to 7 columns; 4 keys and 4 values read from the cache, 3 of each ",
        ),
        (guesses(), "4 of each written; 4 rows fed: 2 kept, 2 cropped afterwards; "),
        (guesses(7, 5, 2), "; 2 rows fed: none kept, 2 cropped afterwards; "),
        (window(), "1 row attends to 3 columns; 2 keys and 2 values read from the cache, 1 of "),
        (window(), "; 4 columns out of the window; "),
        (static(), "1 row attends to 11 columns; 10 keys and 10 values read from the cache, 1 of "),
        (static(), "; 2 slots empty; "),
        (padded(), "step 0, sequence 1, layer 13, head 8: 5 rows attend to 5 columns; "),
        (padded(), "; 2 columns of padding; "),
        (decode(weights=None), "; attention was not kept"),
        (square(["earlier", "new"], [1], ["new"]), "; 1 key and 1 value from an earlier prompt; "),
        (decode(gap=0.13), "not to be trusted: weights times values miss the output by 13%"),
    ],
)
def test_sentence_says_what_is_drawn(drawn, says):
    assert says in describe_square(drawn)


def test_a_picture_whose_weights_do_not_give_the_output_says_so_and_others_do_not():
    for gap in (1e-5, float("nan")):
        assert "trusted" not in describe_square(decode(gap=gap))
    figure = kv.draw_step(decode(gap=2e-4)).figure
    assert any("not to be trusted" in words for words in texts(figure))


def test_equal_shares_always_name_the_first_of_them():
    shares = np.tril(np.full((7, 7), 1 / 7))
    shares[6, 4] += 3e-8
    assert describe_square(decode(shares=shares)).endswith("attends most to 'The', 14%")


def test_repeated_tokens_are_told_apart_by_column_and_the_newest_is_itself():
    shares = np.eye(3)
    tokens = [" the", " cat", " the"]
    itself = decode(3, shares=shares, tokens=tokens)
    assert "attends most to itself, 100%" in describe_square(itself)
    first = decode(3, shares=np.roll(shares, 1, axis=1), tokens=tokens)
    assert "most to ' the' in column 0, 100%" in describe_square(first)


def test_sentence_holds_no_control_characters_and_no_lone_surrogates():
    said = describe_square(decode(3, tokens=["\n", "\0", "\ud800"], shares=np.eye(3)[[0, 1, 0]]))
    assert r"'\ud800' attends most to '\n'" in said
    assert said.encode()


@pytest.mark.parametrize(
    ("drawn", "title"),
    [
        (plain(), "Without a cache: the whole square"),
        (decode(), "With the cache: one row"),
        (prefill(), "Prefill: every row at once"),
        (chunk(), "With the cache: three rows"),
        (guesses(), "With the cache: four rows, 2 of them cropped"),
        (guesses(7, 6, 1), "With the cache: one row, cropped"),
        (prefill(cropped=(5, 6)), "Prefill: every row at once, 2 of them cropped"),
        (square(["new"], [0], ["new"], cached=False), "Without a cache: one row, one column"),
        (
            square(
                ["read"] * 3 + ["recomputed"] * 3 + ["new"],
                range(3, 7),
                ["recomputed"] * 3 + ["new"],
            ),
            "With the cache: four rows, 3 of them recomputed",
        ),
    ],
)
def test_titles_say_what_the_picture_shows(drawn, title):
    assert write_title(drawn) == title


def test_the_line_under_the_title_gives_this_steps_numbers():
    assert " · ".join(list_numbers(plain(10))) == (
        "fed 10 tokens · computed 10 rows · 9 of them recomputed"
    )
    assert " · ".join(list_numbers(decode(10))) == (
        "fed 1 token · computed 1 row · read 9 keys and 9 values, wrote 1 of each"
    )
    assert list_numbers(prefill())[-1] == "wrote 7 keys and 7 values"
    assert " · ".join(list_numbers(guesses())) == (
        "fed 4 tokens · computed 4 rows · 2 kept, 2 cropped · read 3 keys and 3 values, "
        "wrote 4 of each"
    )


def test_the_caches_bytes_are_said_to_be_the_whole_caches_and_not_this_heads():
    whole = {"bytes": 450 * 1024, "n_layers": 30}
    says = "whole cache: 450 KiB, all 30 layers"
    assert f"; {says}; " in describe_square(decode(**whole))
    assert says in list_numbers(decode(**whole))
    assert f"; {says}, both sequences; " in describe_square(decode(**whole, n_sequences=2))
    assert "; whole cache: 7 bytes, 1 layer; " in describe_square(decode(bytes=7))
    assert "whole cache" not in describe_square(plain(**whole))


@pytest.mark.parametrize(("grown", "says"), [(2, "2 tokens"), (0, "0 tokens")])
def test_a_cache_that_did_not_grow_by_what_was_fed_says_so(grown, says):
    odd = decode(held_after=6 + grown)
    assert f"; but the cache grew by {says}; " in describe_square(odd)
    assert f"but the cache grew by {says}" in list_numbers(odd)
    assert all("grew" not in describe_square(usual) for usual in (decode(), prefill(), plain()))


# --- the picture ----------------------------------------------------------------------------


def texts(figure):
    return [text.get_text() for ax in figure.axes for text in ax.texts]


def bundle(picture):
    return picture._repr_mimebundle_()[0]


def test_output_is_an_image_with_alt_text_a_png_and_the_sentence():
    picture = kv.draw_step(decode(3, tokens=['"<a>', " &", " 'b'"], shares=np.eye(3)[[0] * 3]))
    shown = bundle(picture)
    alt = re.search(r'<img alt="([^"]*)"', shown["text/html"])[1]
    assert "<" not in alt
    assert html.unescape(alt) == picture.sentence == shown["text/plain"] == repr(picture)
    data = re.search(r'src="data:image/png;base64,([^"]*)"', shown["text/html"])[1]
    assert data == shown["image/png"]
    assert base64.b64decode(data) == picture.png()
    comment, image = shown["text/html"].split("\n")  # a folded output shows its first line
    assert comment == "<!-- a picture: click to open it -->" and image == picture.html
    assert f'width="{picture.width}"' in shown["text/html"]
    json.dumps(shown)


def test_png_has_a_palette_is_opaque_small_and_the_same_every_time():
    picture = kv.draw_side_by_side(plain(10), decode(10))
    image = Image.open(io.BytesIO(picture.png()))
    assert image.mode == "P"
    assert "transparency" not in image.info
    assert len(picture.png()) < 32_000
    assert len(kv.draw_step(decode(10)).png(sharpness=1)) < 10_000
    assert picture.png() == kv.draw_side_by_side(plain(10), decode(10)).png()
    assert image.getpixel((0, 0)) == image.getpixel((image.width - 1, image.height - 1))
    assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)


def test_colours_of_roles_reach_the_png_exactly():
    colors = {
        color
        for make in (plain(10), decode(10))
        for _, color in Image.open(io.BytesIO(kv.draw_step(make).png()))
        .convert("RGB")
        .getcolors(10**6)
    }
    wanted = [
        style.fill(role, s) for role in ("keys", "values") for s in ("new", "recomputed", "read")
    ]
    wanted += [
        style.fill(role, s) for role in ("queries", "outputs") for s in ("new", "recomputed")
    ]
    for color in wanted:
        assert tuple(round(255 * part) for part in mpl.colors.to_rgb(color)) in colors


@pytest.mark.parametrize("make", [plain, decode, prefill, chunk, guesses, window, padded])
def test_pictures_of_one_span_are_one_size(make):
    want = kv.draw_step(decode(7), span=13)
    got = kv.draw_step(make(), span=13)
    assert (got.width, got.height) == (want.width, want.height)


@pytest.mark.parametrize("n", [1, 17, 67, 160, 163, 307])
def test_no_picture_is_wider_than_the_cap_and_what_is_left_out_is_said(n):
    picture = kv.draw_step(decode(n))
    assert 480 <= picture.width <= 1200
    assert picture.height <= 1200
    left_out = n - 160
    said = f"columns 0 to {left_out - 1} left out, where the newest row puts "
    assert (said in picture.sentence) == (left_out > 0)
    assert any(said in words for words in texts(picture.figure)) == (left_out > 0)
    pair = kv.draw_side_by_side(plain(n), decode(n))
    assert pair.width <= 1200
    assert (f"columns 0 to {n - 81} left out" in pair.sentence) == (n > 80)


CROWDED = [chunk(), window(), static(), padded(), decode(gap=0.13), prefill(11), keys_in_front(13)]
CROWDED += [guesses(), guesses(23, 9, 11), guesses(37, 30, 7)]
CROWDED += [make(n) for make in (plain, decode) for n in (3, 23, 37)]


@pytest.mark.parametrize("drawn", CROWDED, ids=lambda drawn: describe_square(drawn)[34:50])
def test_nothing_is_cut_off_and_no_two_texts_overlap(drawn):
    for picture in (kv.draw_step(drawn), kv.draw_side_by_side(drawn, drawn)):
        inside, upright = picture.figure.bbox, []
        renderer = FigureCanvasAgg(picture.figure).get_renderer()
        for ax in picture.figure.axes:
            ax.apply_aspect()
            for words in filter(lambda text: text.get_text(), ax.texts):
                box = words.get_window_extent(renderer)
                assert inside.x0 <= box.x0, words.get_text()
                assert inside.y0 <= box.y0, words.get_text()
                assert box.x1 <= inside.x1, words.get_text()
                assert box.y1 <= inside.y1, words.get_text()
                upright += [(words.get_text(), box)] if not words.get_rotation() else []
        for i, (one, box) in enumerate(upright):
            for other, there in upright[:i]:
                deep = min(box.y1, there.y1) - max(box.y0, there.y0)
                wide = min(box.x1, there.x1) - max(box.x0, there.x0)
                assert min(deep, wide) < 3, (one, other)  # boxes hold room for accents


def test_shown_once_as_a_cells_last_line_and_leaves_no_figure_open():
    import matplotlib.pyplot as plt

    shell = InteractiveShell.instance()
    shown = []
    before = shell.display_pub.publish
    shell.display_pub.publish = lambda *given, **named: shown.append(named)
    try:
        shell.push({"kv": kv, "run": Run([decode()] * 5)})
        result = shell.run_cell("kv.draw_step(run, step=4, layer=13, head=8)", store_history=False)
    finally:
        shell.display_pub.publish = before
    assert result.success
    assert isinstance(result.result, Picture)
    assert shown == []
    assert plt.get_fignums() == []
    made = shell.display_formatter.format(result.result)[0]
    assert {"text/html", "image/png", "text/plain"} <= set(made)


def test_settings_outside_are_untouched_and_do_not_reach_in():
    def draw():
        yield kv.draw_side_by_side(plain(7), decode(7)).png(sharpness=1)
        yield kv.draw_curves([0, 1], {"a": [1, 2]}, title="t").png(sharpness=1)

    with mpl.rc_context({"text.usetex": True, "font.size": 31, "path.sketch": (9, 99, 9)}):
        before = dict(mpl.rcParams)
        pngs = list(draw())
        assert dict(mpl.rcParams) == before
    assert pngs == list(draw())


@pytest.mark.parametrize("title", ["pay $_$ now", "costs $5 and $6", r"$\frac$", "a_{b", "100 %"])
def test_titles_and_names_are_drawn_as_typed_and_nothing_warns(title):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        step = kv.draw_step(
            Run([decode(tokens=[title] * 7)]), step=0, layer=13, head=8, title=title
        )
        curves = kv.draw_curves([0, 1], {title: [1, 2]}, title=title, xlabel=title, ylabel=title)
        lengths = kv.draw_bars({title: 3}, title=title, xlabel=title, levels={title: 2})
        for picture in (step, curves, lengths):
            FigureCanvasAgg(picture.figure).draw()
            assert title in [words for words in texts(picture.figure)]


def test_save_writes_the_png(tmp_path):
    picture = kv.draw_step(decode())
    path = picture.save(tmp_path / "one.png")
    assert path.read_bytes() == picture.png()


def stale(n_old=5, n=11, **changes):
    """Six tokens after the keys and values of an earlier prompt."""
    states = ["earlier"] * n_old + ["new"] * (n - n_old)
    tokens = ["?"] * n_old + list("abcdef")
    return square(states, range(n_old, n), ["new"] * (n - n_old), tokens=tokens, **changes)


def test_an_earlier_prompt_has_no_rows_and_is_bracketed():
    picture = kv.draw_step(stale())
    words = texts(picture.figure)
    assert {"earlier prompt", "this text"} <= set(words) and "?" not in words
    assert "not computed" not in words
    cells = find_cells(picture.figure.axes[0].collections)
    assert {p for role, p in cells if role == "keys"} == set(range(11))
    assert {p[0] for role, p in cells if role == "attention"} == set(range(5, 11))
    usual = kv.draw_step(prefill(11))
    assert picture.height < usual.height - 100 and not {"this text"} & set(texts(usual.figure))
    assert "5 keys and 5 values from an earlier prompt" in picture.sentence
    moved = replace(stale(), tokens=tuple("uvwxyabcdef"))  # earlier, but of this recording
    assert "earlier prompt" not in texts(kv.draw_step(moved).figure)
    later = kv.draw_step(stale(), span=13)
    assert later.height == kv.draw_step(prefill(), span=13).height, "pictures of one span match"


def slots(n, n_filled=11):
    """A cache of `n` slots, with all but `n_filled` of them empty."""
    columns = ["read"] * (n_filled - 1) + ["new"] + ["empty"] * (n - n_filled)
    tokens = [*(f"t{j}" for j in range(n_filled)), *[""] * (n - n_filled)]
    masked, held = np.arange(n)[None] >= n_filled, {"held_before": n_filled - 1}
    changes = {"masked": masked, "tokens": tokens, "held_after": n_filled, **held}
    return square(columns, [n_filled - 1], ["new"], **changes)


@pytest.mark.parametrize("n", [17, 67, 400])
def test_of_many_empty_slots_a_few_are_drawn(n):
    picture = kv.draw_step(slots(n))
    cells = find_cells(picture.figure.axes[0].collections)
    assert [cells["keys", j] for j in range(16)] == ["read"] * 10 + ["new"] + ["empty"] * 5
    assert ("keys", 16) not in cells and ("values", 16) not in cells
    assert f"; {n - 11} slots empty; " in picture.sentence and "left out" not in picture.sentence
    assert any("5 empty slots drawn" in words for words in texts(picture.figure))
    strip = kv.draw_filmstrip(Run([slots(n, 7), slots(n, 8)]), steps=range(2))
    assert ("keys", 12) in find_cells(strip.figure.axes[1].collections)
    assert kv.draw_step(slots(n), span=17).width > 0
    usual = kv.draw_step(static())
    assert not any("slots drawn" in words for words in texts(usual.figure))


def test_tokens_held_twice_are_bracketed_and_said():
    tokens = [" a", " b", " b", " c", " c", " d", " d"]
    picture = kv.draw_step(decode(tokens=tokens, surplus=(2, 4, 5)))
    assert texts(picture.figure).count("twice") == 2, "' d' comes twice in the text"
    assert "; 2 tokens read twice; " in picture.sentence
    assert "twice" not in kv.draw_step(decode(tokens=tokens)).sentence


def test_a_cache_that_writes_twice_is_drawn_and_said_so():
    model = small.llama(tie_word_embeddings=True)
    fault, ids = kv.faults.written_twice, torch.tensor([[3, 5, 7, 11, 13, 17, 19, 23]])
    forge, cache = fault.forge_class.from_pretrained(model), fault.cache_class(3)
    with torch.no_grad(), kv.record(forge) as run:
        for piece in ids.split([5, 1, 1, 1], dim=1):
            forge(piece, cache)
    square = run[3].square(1, 0)
    assert square.twice == [5, 7, 9] and square.tokens[4:10] == ("13", "13", "17", "17", "19", "19")
    picture = kv.draw_step(run, step=3, layer=1)
    assert "; but the cache grew by 2 tokens; 3 tokens read twice; " in picture.sentence
    assert texts(picture.figure).count("twice") == 3


def test_a_strip_cuts_no_common_word():
    long = [" internationalization" if j == 3 else f" remembered{j}" for j in range(7)]
    strip = kv.draw_filmstrip(Run([decode(tokens=long)] * 4), steps=range(4)).figure
    assert {"remembered6", "remembered0"} <= set(texts(strip))
    renderer, (width, height) = FigureCanvasAgg(strip).get_renderer(), strip.bbox.size
    for text in (text for ax in strip.axes for text in ax.texts):
        box = text.get_window_extent(renderer)
        assert box.x0 >= 0 and box.x1 <= width and box.y1 <= height, text.get_text()
    assert "internationalization" in texts(kv.draw_step(decode(tokens=long[:7])).figure)


# --- several squares ------------------------------------------------------------------------

LOOP = Run([plain(n, step=n - 7) for n in range(7, 12)])
CACHED = Run([prefill(), *(decode(n, step=n - 7) for n in range(8, 12))])


def test_side_by_side_of_two_runs_at_one_step():
    picture = kv.draw_side_by_side(LOOP, CACHED, step=3, layer=13, head=8)
    left, right = picture.sentence.removeprefix("left: ").split(". right: ")
    assert left == describe_square(plain(10, step=3))
    assert right == describe_square(decode(10, step=3))
    assert {"Without a cache: the whole square", "With the cache: one row"} <= set(
        texts(picture.figure)
    )


def test_side_by_side_of_two_steps_of_one_run_keeps_every_column_where_it_was():
    picture = kv.draw_side_by_side(CACHED, CACHED, step=(2, 3), layer=13, head=8)
    left, right = picture.figure.axes[:2]
    assert left.get_xlim() == right.get_xlim()
    assert left.get_ylim() == right.get_ylim()
    assert {"Step 2: one row", "Step 3: one row"} <= set(texts(picture.figure))


def test_side_by_side_of_two_heads_names_them_and_takes_titles():
    pair = decode(head=8), decode(head=5)
    assert "Layer 13, head 5: one row" in texts(kv.draw_side_by_side(*pair).figure)
    assert "Mine" in texts(kv.draw_side_by_side(*pair, titles=("Mine", "Yours")).figure)


@pytest.mark.parametrize(
    "ask",
    [
        lambda: kv.draw_side_by_side(LOOP),
        lambda: kv.draw_side_by_side(LOOP, step=3),
        lambda: kv.draw_side_by_side(LOOP, step=(3, 3), head=8),
        lambda: kv.draw_side_by_side(plain()),
    ],
)
def test_side_by_side_of_one_thing_is_refused(ask):
    with pytest.raises(ValueError, match=r"right: expected a second recording, or a pair .*\(3, 4"):
        ask()
    assert kv.draw_side_by_side(LOOP, step=(2, 3)).sentence.startswith("left: step 2")


def test_filmstrip_gives_rows_and_columns_of_every_step():
    picture = kv.draw_filmstrip(CACHED, steps=range(5), layer=13, head=8)
    assert picture.sentence.startswith(
        "layer 13, head 8, with a cache, steps 0, 1, 2, 3, 4: rows computed 7, 1, 1, 1, 1; columns "
        "7, 8, 9, 10, 11; at the end step 4, layer 13, head 8: 1 row attends to 11 columns; "
    )
    panels = picture.figure.axes[:5]
    assert len({ax.get_xlim() for ax in panels}) == 1
    assert picture.width <= 1200
    both = kv.draw_filmstrip(CACHED, uncached=LOOP, steps=range(5), layer=13, head=8)
    assert len(both.figure.axes) == 11
    assert "without a cache" in both.sentence
    assert "with a cache" in both.sentence


@pytest.mark.parametrize(
    ("ask", "says"),
    [
        (
            lambda: kv.draw_step(LOOP, step=5, layer=13, head=8),
            "step 5: this recording has steps 0 to 4",
        ),
        (
            lambda: kv.draw_step(LOOP, step=-1, layer=13, head=8),
            "step -1: this recording has steps 0 to 4",
        ),
        (
            lambda: kv.draw_step(Run([]), step=0, layer=13, head=8),
            "step 0: this recording has no steps",
        ),
        (
            lambda: kv.draw_step(LOOP, step=1.5, layer=13, head=8),
            "step: expected a whole number, but got 1.5",
        ),
        (
            lambda: kv.draw_step(LOOP, step=0, layer=13, head=True),
            "head: expected a whole number, but got True",
        ),
        (
            lambda: kv.draw_step(LOOP, step=1, layer=13, head=8, span=5),
            "span 5: expected at least 8, the number of columns",
        ),
        (
            lambda: kv.draw_side_by_side(LOOP, LOOP, step=(1, 2, 3), layer=13, head=8),
            "step: .* got .1, 2, 3.",
        ),
        (
            lambda: kv.draw_side_by_side(LOOP, LOOP, step=None, layer=13, head=8),
            "step: .* got None",
        ),
        (lambda: kv.draw_filmstrip(LOOP, steps=[]), "steps: expected at least one step"),
        (lambda: kv.draw_curves([0, 1], {"a": [1]}, title="t"), "'a': expected 2 numbers"),
        (
            lambda: kv.draw_curves([0, 1], {}, title="t"),
            "expected at least one finite number to draw",
        ),
        (
            lambda: kv.draw_curves([0], {"a": [0]}, title="t", log=True),
            "at least one number above zero",
        ),
        (lambda: kv.draw_bars({}, title="t"), "expected at least one finite number to draw"),
    ],
)
def test_bad_input_is_refused_with_what_was_expected_and_given(ask, says):
    with pytest.raises(ValueError, match=says):
        ask()


# --- curves and bars ------------------------------------------------------------------------


def test_curves_are_named_where_they_end_and_the_sentence_says_where_they_go():
    picture = kv.draw_curves(
        range(5),
        {"plain": [6, 7, 8, 9, 10], "cached": [6, 1, 1, 1, 1]},
        title="It grows",
        xlabel="step",
        ylabel="rows",
        levels={"gate": 3},
    )
    assert picture.sentence == (
        "It grows: plain goes from 6 to 10; cached goes from 6 to 1; gate at 3; over step 0 to 4"
    )
    ax = picture.figure.axes[1]
    at = {t.get_text(): t.get_position()[1] for t in ax.texts}
    assert at["plain"] > at["gate"] > at["cached"]
    curve = next(line for line in ax.lines if line.get_gid() == "line:cached")
    assert curve.get_ydata().tolist() == [6, 1, 1, 1, 1]
    dashes = {line.get_linestyle() for line in ax.lines if line.get_gid().startswith("line")}
    assert len(dashes) == 2


def test_names_of_curves_that_end_together_do_not_overlap():
    picture = kv.draw_curves([0, 1], {"a": [1, 5], "b": [2, 5], "c": [3, 5.01]}, title="t")
    ax = picture.figure.axes[1]
    tops = sorted(t.get_window_extent().y0 for t in ax.texts)
    assert min(np.diff(tops)) > 10


def test_bars_are_as_long_as_their_numbers():
    picture = kv.draw_bars({"plain": 23900, "cached": 219}, title="Positions", highlight=["cached"])
    lengths = [bar.get_width() for bar in picture.figure.axes[1].patches]
    assert lengths == [23900, 219]
    assert picture.sentence == "Positions: plain 23,900, cached 219"


@pytest.mark.parametrize("log", [False, True])
def test_a_level_is_in_front_of_the_bars_and_no_number_is_on_it(log):
    values = {"just under": 2.9, "under": 1, "on": 3, "just over": 3.1, "far over": 90}
    levels = {"the level": 3, "the next level": 3.5}
    figure = kv.draw_bars(values, title="Far", levels=levels, log=log).figure
    ax, renderer = figure.axes[1], FigureCanvasAgg(figure).get_renderer()
    lines = [line for line in ax.lines if (line.get_gid() or "").startswith("level:")]
    assert [line.get_xdata()[0] for line in lines] == [3, 3.5]
    assert min(line.zorder for line in lines) > max(bar.zorder for bar in ax.patches)
    boxes = {text.get_gid(): text.get_window_extent(renderer) for text in ax.texts}
    for x in levels.values():
        across = ax.transData.transform((x, 0))[0]
        for y in range(5):
            box = boxes[f"number:{y}"]
            assert not box.x0 - 2 < across < box.x1 + 2, y
    assert not boxes["name:the level"].overlaps(boxes["name:the next level"])


@pytest.mark.parametrize("log", [False, True])
def test_a_number_is_never_beyond_a_level_its_bar_does_not_reach(log):
    values = {"far under": 0.012, "just under": 0.98, "at": 1, "over": 1.1, "far over": 30, "0": 0}
    levels = {"gate": 1, "next": 1.3, "low": 0.013}
    highlight, last = ["just under", "over"], {"end": 33}
    for lines in ({"gate": 1}, levels, levels | last):
        picture = kv.draw_bars(values, title="t", log=log, levels=lines, highlight=highlight)
        figure = picture.figure
        ax, renderer = figure.axes[1], FigureCanvasAgg(figure).get_renderer()
        boxes = {text.get_gid(): text.get_window_extent(renderer) for text in ax.texts}
        names = [text for text in ax.texts if not (text.get_gid() or "").strip()]
        for y, (value, name) in enumerate(zip(values.values(), names, strict=True)):
            box, there = boxes[f"number:{y}"], name.get_window_extent(renderer)
            assert there.x0 >= 0 and there.x1 < box.x0
            for level in lines.values():
                at = ax.transData.transform((level, 0))[0]
                assert not box.x0 - 1 < at < box.x1 + 1, (value, level)
                assert value >= level or box.x1 < at, (value, level)
        check_contrast(figure)


@pytest.mark.parametrize("highlight", [[], ["under"]])
def test_a_number_inside_a_bar_stands_on_paper(highlight):
    values = {"under": 2.9, "far under": 1}
    ax = kv.draw_bars(values, title="t", levels={"gate": 3}, highlight=highlight).figure.axes[1]
    renderer = FigureCanvasAgg(ax.figure).get_renderer()
    number = next(text for text in ax.texts if text.get_gid() == "number:0")
    grounds = [bar for bar in ax.patches if (bar.get_gid() or "").startswith("ground:")]
    box, ground = (each.get_window_extent(renderer) for each in (number, *grounds))
    assert (
        mpl.colors.to_hex(grounds[0].get_facecolor()) == style.PAPER and not grounds[0].get_hatch()
    )
    assert ground.x0 < box.x0 and box.x1 < ground.x1 and number.get_color() == style.TEXT


def test_a_legend_says_what_the_hatched_bars_have_in_common():
    values, levels = {"a": 1e-6, "b": 3, "c": 5}, {"gate": 1e-5}
    options = {"title": "Gaps", "log": True, "levels": levels, "marked": "over the gate"}
    picture = kv.draw_bars(values, highlight=["b", "c"], xlabel="gap", **options)
    whole, ax = picture.figure.axes
    (swatch,) = [each for each in whole.patches if each.get_gid() == "legend:marked"]
    bars = {each.get_gid(): each for each in ax.patches}
    for name in "bc":
        assert bars[f"bar:{name}"].get_hatch() == swatch.get_hatch()
        assert bars[f"bar:{name}"].get_facecolor() == swatch.get_facecolor()
    assert bars["bar:a"].get_hatch() != swatch.get_hatch()
    assert "over the gate" in texts(picture.figure)
    assert picture.sentence.endswith("; over the gate: b, c")
    none = kv.draw_bars(values, **options)
    assert "over the gate" not in texts(none.figure)
    assert none.sentence.endswith("; over the gate: none")


def test_markers_of_curves_that_meet_are_apart():
    x = range(80)
    ax = kv.draw_curves(x, {"held": [1] * 80, "allocated": [1] * 80}, title="t").figure.axes[1]
    starts = [line.get_markevery() for line in ax.lines if line.get_gid().startswith("line:")]
    assert starts == [(0, 10), (5, 10)]


@pytest.mark.parametrize(
    ("value", "written"),
    [(23900, "23,900"), (0, "0"), (4e-5, "4e-5"), (1.44e-4, "1.4e-4"), (0.0312, "0.0312"),
     (7.104, "7.1"), (1e12, "1e12"), (1234.5, "1,234"), (-3, "-3"), (float("nan"), "nan")],
)  # fmt: skip
def test_numbers_are_written_as_a_person_would(value, written):
    assert write_number(value) == written


# --- what it looks like ---------------------------------------------------------------------

LOOKS = {
    "pair": lambda: kv.draw_side_by_side(
        plain(10, shares=object_share()), decode(10, shares=object_share())
    ),
    "chunk": lambda: kv.draw_step(chunk(), span=11),
    "odd": lambda: kv.draw_side_by_side(window(), padded()),
    "static": lambda: kv.draw_step(static()),
    "strip": lambda: kv.draw_filmstrip(CACHED, uncached=LOOP, steps=range(5), layer=13, head=8),
    "curves": lambda: kv.draw_curves(
        range(5), {"plain": [6, 7, 8, 9, 10], "cached": [6, 1, 1, 1, 1]}, title="It grows"
    ),
    "bars": lambda: kv.draw_bars(
        {"right": 4e-5, "wrong": 7}, title="Far", log=True, levels={"rounding": 3e-4}
    ),
}


@pytest.mark.parametrize("name", LOOKS)
def test_it_looks_as_it_did(name):
    """To write new ones, run python tests/test_picture.py, and look at them."""
    want, got = (
        Image.open(file).convert("RGB")
        for file in (BASELINE / f"{name}.png", io.BytesIO(LOOKS[name]().png(sharpness=1)))
    )
    assert got.size == want.size
    small = [np.asarray(image.reduce(3), dtype=float) for image in (want, got)]
    assert np.sqrt(np.mean((small[0] - small[1]) ** 2)) < 2.5


def test_contact_sheet_holds_every_picture_of_a_notebook(tmp_path):
    shown = [bundle(kv.draw_step(decode(n))) for n in (3, 5)]
    cells = [{"outputs": [{"data": each}]} for each in shown] + [{"source": "text"}]
    path = tmp_path / "00.ipynb"
    path.write_text(json.dumps({"cells": cells}))
    found = pictures.pictures(path)
    assert [name for name, _ in found] == ["00 [0]", "00 [1]"]
    page = pictures.sheet(found)
    assert page.width >= sum(image.width for _, image in found)
    assert page.height > max(image.height for _, image in found)


def test_contact_sheet_takes_the_notebooks_git_knows(tmp_path):
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    for name in ("b.ipynb", "a.ipynb", "draft.ipynb"):
        (tmp_path / name).write_text('{"cells": []}')
    subprocess.run(["git", "-C", tmp_path, "add", "a.ipynb", "b.ipynb"], check=True)
    assert [path.name for path in pictures.notebooks(tmp_path)] == ["a.ipynb", "b.ipynb"]


def test_the_courses_first_picture_is_drawn_from_a_real_run(default_model):
    import torch

    model, tokenizer = default_model
    ids = tokenizer("The first law of motion states", return_tensors="pt").input_ids
    with kv.record(model, tokenizer, layers=(13,)) as run, torch.no_grad():
        out = model(ids, use_cache=True)
        for _ in range(4):
            token = out.logits[:, -1:].argmax(-1)
            out = model(token, cache=out.cache, use_cache=True)
            ids = torch.cat([ids, token], -1)
        model(ids, use_cache=False)
    assert kv.draw_step(run, step=4, layer=13, head=8).sentence == (
        "step 4, layer 13, head 8: 1 row attends to 10 columns; "
        "9 keys and 9 values read from the cache, 1 of each written; "
        "whole cache: 450 KiB, all 30 layers; "
        f"' at' attends most to ' object', {LOOKED_AT}%"
    )
    assert kv.draw_step(run, step=5, layer=13, head=8).sentence.endswith(
        f"to ' object', {LOOKED_AT}%"
    )
    with pytest.raises(ValueError, match="layer 12"):
        kv.draw_step(run, step=4, layer=12, head=8)
    with pytest.raises(ValueError, match="head 9"):
        kv.draw_step(run, step=4, layer=13, head=9)


def test_anything_but_a_recording_and_a_list_of_steps_is_refused():
    with pytest.raises(TypeError, match="expected a recording"):
        kv.draw_step(None, step=0, layer=0, head=0)
    with pytest.raises(ValueError, match="expected several, such as range"):
        kv.draw_filmstrip([], steps=3)


if __name__ == "__main__":
    BASELINE.mkdir(exist_ok=True)
    for name in sys.argv[1:] or LOOKS:
        (BASELINE / f"{name}.png").write_bytes(LOOKS[name]().png(sharpness=1))


@pytest.mark.parametrize("name", ["", "step.svg", "step"])
def test_a_picture_is_saved_as_a_png_only(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match="expected a name that ends in .png"):
        kv.draw_bars({"a": 1}, title="t").save(name)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "draw",
    [
        lambda: kv.draw_curves(torch.arange(3).bfloat16(), {1: torch.ones(3).bfloat16()}, title=""),
        lambda: kv.draw_curves(range(3), {"y": torch.ones(3, requires_grad=True)}, title="a"),
        lambda: kv.draw_curves(range(3), {"y" * 10_000: [1, 2, 3]}, title="a"),
        lambda: kv.draw_bars({"y" * 10_000: 1, 2: torch.tensor(2.0).half()}, title="a"),
        lambda: kv.draw_bars({"y\ud800": 1}, title="half a pair: \ud800"),
        lambda: kv.draw_column(torch.rand(2, 3).bfloat16(), title="a"),
        lambda: kv.draw_memory({1: torch.tensor([1, 2]).bfloat16()}, title="a"),
    ],
    ids=range(7),
)
def test_any_numbers_and_any_names_are_drawn(draw):
    picture = draw()
    assert picture.png() and picture._repr_mimebundle_()[0]["text/html"].encode()


def test_no_numbers_are_one_clear_error():
    with pytest.raises(ValueError, match="curves: expected {name: numbers}, but got .1, 2, 3."):
        kv.draw_curves(range(3), [1, 2, 3], title="a")
    with pytest.raises(ValueError, match="'y': expected numbers, but got 'abc'"):
        kv.draw_curves(range(3), {"y": "abc"}, title="a")
