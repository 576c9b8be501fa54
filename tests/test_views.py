"""Views of all heads of a layer, of one step over another, and of a recording as a GIF."""

import io
import os
from html.parser import HTMLParser

import numpy as np
import pytest
import small
import torch
from PIL import Image

import kvviz as kv
from kvviz.drawing.marks import find_cells
from kvviz.recording.recorder import record
from kvviz.words import join

EDGES = ("keys", "values", "queries", "outputs")


@pytest.fixture(scope="module")
def runs():
    model, ids = small.llama(), small.prompt(6)
    with record(model) as cached:
        small.cached_loop(model, ids, 5)
    with record(model) as plain:
        small.plain_loop(model, ids, 5)
    return cached, plain


def drawn(picture, which=0):
    """{(role, place): state} on one of a picture's squares."""
    return find_cells(picture.figure.axes[which].collections)


# -- all heads -----------------------------------------------------------------------------------


def test_every_head_is_drawn_and_said(runs):
    cached, _ = runs
    picture = kv.draw_heads(cached, step=3, layer=1)
    for head in range(6):
        square = cached[3].square(1, head)
        most = round(100 * float(np.nanmax(square.weights[0])))
        assert f"head {head} to " in picture.sentence and f"{most}%" in picture.sentence
        inked = [place for (role, place) in drawn(picture, head) if role == "attention"]
        assert {(8, j) for j in range(9)} <= set(inked)
    words = [text.get_text() for ax in picture.figure.axes for text in ax.texts]
    assert [word for word in words if word.startswith("head ")] == [f"head {n}" for n in range(6)]


def test_all_heads_need_attention_and_a_layer_that_is_there(runs):
    with pytest.raises(ValueError, match="layer 7"):
        kv.draw_heads(runs[0], step=0, layer=7)
    with record(small.llama(), keep=()) as counts:
        small.cached_loop(small.llama(), small.prompt(4), 2)
    with pytest.raises(ValueError, match="no steps|attention was not kept|this recording has"):
        kv.draw_heads(counts, step=0, layer=0)


# -- one step over another -----------------------------------------------------------------------


def test_one_new_cell_an_edge_and_one_new_row_light_up(runs):
    model, ids = small.llama(), small.prompt(6)
    with record(model, keep=("attention", *EDGES)) as plain:
        small.plain_loop(model, ids, 5)
    picture = kv.draw_overlay(plain, steps=(2, 3), layer=1, head=4)
    states = drawn(picture)
    for role in EDGES:
        found = [states[role, place] for place in range(9)]
        assert found == ["same"] * 8 + ["new"], role
    assert "1 new cell on each of keys and values, 1 new row" in picture.sentence
    assert picture.sentence.endswith(
        "; 8 rows recomputed; unchanged: attention, keys, values, queries and outputs"
    )
    veil = [c for c in picture.figure.axes[0].collections if c.get_gid() == "veil"]
    (path,) = veil[0].get_paths()
    assert path.get_extents().bounds == (0, 0, 9, 8), "over the old rows, not over the new one"


@pytest.mark.parametrize("kept", [(), ("keys",), ("keys", "values"), ("queries",), EDGES[2:]])
def test_what_was_not_compared_is_drawn_as_recomputed_and_not_called_unchanged(kept):
    model, ids = small.llama(), small.prompt(6)
    with record(model, keep=("attention", *kept)) as plain:
        small.plain_loop(model, ids, 5)
    picture = kv.draw_overlay(plain, steps=(2, 3), layer=1, head=4)
    states = drawn(picture)
    for role in ("keys", "values"):
        assert states[role, 0] == ("same" if role in kept else "recomputed")
    for role in ("queries", "outputs"):
        assert states[role, 0] == ("same" if kept == EDGES[2:] else "recomputed")
    assert picture.sentence.endswith(f"unchanged: {join(['attention', *kept])}")
    with record(model, keep=()) as counts:
        small.plain_loop(model, ids, 5)
    picture = kv.draw_overlay(counts, steps=(2, 3), layer=1)
    assert picture.sentence.endswith("; 8 rows recomputed")
    assert not [c for c in picture.figure.axes[0].collections if c.get_gid() == "veil"]


@pytest.mark.parametrize("edge", EDGES)
def test_an_edge_that_moved_is_counted_and_not_called_unchanged(edge):
    model, ids = small.llama(), small.prompt(6)
    with record(model, keep=("attention", *EDGES)) as plain:
        small.plain_loop(model, ids, 5)
    plain[3].kept[edge][1][:, :, 2] += 0.5
    picture = kv.draw_overlay(plain, steps=(2, 3), layer=1, head=4)
    one = "query" if edge == "queries" else edge.removesuffix("s")
    rest = join([each for each in ("attention", *EDGES) if each != edge])
    assert picture.sentence.endswith(f"; unchanged: {rest}; 1 {one} moved")
    assert drawn(picture)[edge, 2] == "recomputed"


def test_with_a_cache_the_rest_was_not_computed(runs):
    picture = kv.draw_overlay(runs[0], steps=(2, 3), layer=1, head=4)
    assert picture.sentence.endswith("1 new row; the rest was not recomputed")
    assert drawn(picture)["keys", 8] == "new" and drawn(picture)["keys", 0] == "same"


def test_what_moved_is_counted():
    """Without the causal mask, earlier rows change, and the picture must say so."""
    model, ids = small.llama(), small.prompt(7)
    with torch.no_grad(), record(model) as run:
        for n in (6, 7):
            free = torch.zeros(1, 1, n, n)
            model(ids[:, :n], attention_mask=free, use_cache=False)
    picture = kv.draw_overlay(run, steps=(0, 1), layer=0, head=0)
    assert "unchanged" not in picture.sentence
    moved = int(picture.sentence.split("; ")[-1].removesuffix(" cells of attention moved"))
    assert moved > 10
    veil = [c for c in picture.figure.axes[0].collections if c.get_gid() == "veil"]
    assert not veil, "every row moved"


@pytest.mark.parametrize("steps", [(3, 2), (2, 2), (1, 2, 3)])
def test_an_overlay_needs_two_steps_with_the_earlier_first(runs, steps):
    with pytest.raises(ValueError, match="expected two, the earlier first"):
        kv.draw_overlay(runs[1], steps=steps, layer=0, head=0)


def test_an_overlay_needs_two_steps_of_the_same_text():
    model = small.llama()
    with torch.no_grad(), record(model) as run:
        model(small.prompt(5), use_cache=False)
        model(small.prompt(6, seed=3), use_cache=False)
    with pytest.raises(ValueError, match="expected the same text in both"):
        kv.draw_overlay(run, steps=(0, 1), layer=0, head=0)


# -- a moving picture ----------------------------------------------------------------------------


class Images(HTMLParser):
    found = ()

    def handle_starttag(self, tag, attrs):
        assert tag == "img"
        self.found = dict(attrs)


def test_each_frame_is_the_steppers(runs, tmp_path):
    made = kv.animate(*runs, layer=1, head=4, seconds=0.5)
    path = made.save(tmp_path / "decode.gif")
    walk = kv.stepper(*runs, layer=1, head=4, beside=True)
    gif = Image.open(path)
    assert gif.n_frames == 5 and gif.mode == "P" and gif.info["loop"] == 0
    for step in range(5):
        gif.seek(step)
        assert gif.info["duration"] == (1500 if step == 4 else 500)
        walk.step = step
        right = np.asarray(Image.open(io.BytesIO(walk.frame)).convert("RGB"))
        assert np.array_equal(np.asarray(gif.convert("RGB")), right), f"step {step}"
    assert (
        made.sentence.startswith("5 steps, at the end left: step 4") and repr(made) == made.sentence
    )
    image = Images()
    shown = made._repr_mimebundle_()["text/html"]
    assert shown.startswith("<!-- a picture: click to open it -->\n<img ")
    image.feed(shown)
    assert image.found["alt"] == made.sentence
    assert image.found["src"].startswith("data:image/gif;base64,")
    assert sorted(os.listdir(tmp_path)) == ["decode.gif"]


def test_one_run_and_some_steps(runs, tmp_path):
    made = kv.animate(runs[0], steps=[0, 4])
    assert Image.open(io.BytesIO(made.gif)).n_frames == 2


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"path": "decode.png"}, "ends in .gif, but got 'decode.png'"),
        ({"seconds": 0}, "expected 0.02 to 60"),
        ({"steps": [9]}, r"some of 0 to 4, but got \[9\]"),
        ({"steps": []}, "some of 0 to 4"),
        ({"layer": 9}, "layer 9"),
    ],
)
def test_bad_input_is_refused_and_nothing_is_written(runs, tmp_path, given, message):
    path = tmp_path / given.pop("path", "decode.gif")
    with pytest.raises(ValueError, match=message):
        kv.animate(runs[0], **given).save(path)
    assert not list(tmp_path.iterdir())


def test_an_older_file_stays_if_the_new_one_cannot_be_written(runs, tmp_path):
    with pytest.raises(OSError):
        kv.animate(runs[0], steps=[0]).save(tmp_path / "nowhere" / "decode.gif")
