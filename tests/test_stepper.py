"""The stepper without a browser: its state, answers and frames, and what it leaves behind."""

import base64
import gc
import html
import io
import json
import re

import numpy as np
import psutil
import pytest
import squares
import traitlets
from matplotlib import pyplot
from PIL import Image
from small import cached_loop, gemma3, llama, plain_loop, prompt

import kvviz as kv
from kvviz.drawing import layout, raster, style
from kvviz.drawing.layout import Room
from kvviz.drawing.marks import find_cells
from kvviz.drawing.picture import Picture
from kvviz.drawing.sentences import describe
from kvviz.widgets import frames
from kvviz.widgets.stepper import Stepper

PROMPT, NEW = 5, 7
MADE = {
    "prefill": squares.prefill(),
    "decode": squares.decode(),
    "plain": squares.plain(),
    "chunk": squares.chunk(),
    "window": squares.window(),
    "static": squares.static(),
    "padded": squares.padded(),
    "keys in front": squares.keys_in_front(),
    "not kept": squares.decode(weights=None),
    "doubtful": squares.decode(gap=0.1),
    "odd words": squares.decode(3, tokens=["costs $5 and $6", "\n", " 語"]),
    "no word": squares.decode(3, tokens=["", " ", ""]),
}


def recorded(loop, model, ids, **options):
    with kv.record(model, **options) as run:
        loop(model, ids, NEW)
    return run


@pytest.fixture(scope="module")
def model():
    return llama()


@pytest.fixture(scope="module")
def cached(model):
    return recorded(cached_loop, model, prompt(PROMPT))


@pytest.fixture(scope="module")
def plain(model):
    return recorded(plain_loop, model, prompt(PROMPT))


# --- state ----------------------------------------------------------------------------------


def test_it_starts_at_the_first_step_layer_and_head_with_the_cache(model, cached, plain):
    walk = kv.stepper(cached, plain)
    assert (walk.step, walk.layer, walk.head, walk.cached) == (0, 0, 0, True)
    some = recorded(cached_loop, model, prompt(PROMPT), layers=[1, 2])
    assert kv.stepper(some).layer == 1


def test_setting_the_state_changes_sentence_and_frame(cached, plain):
    walk = kv.stepper(cached, plain)
    seen = set()
    for change in ({"step": 3}, {"layer": 2}, {"head": 5}, {"cached": False}, {"step": 0}):
        for name, value in change.items():
            setattr(walk, name, value)
        run = cached if walk.cached else plain
        drawn = kv.draw_step(run, step=walk.step, layer=walk.layer, head=walk.head)
        assert walk.sentence == repr(walk) == drawn.sentence
        assert walk.frame.startswith(b"\x89PNG")
        seen.add(walk.frame)
    assert len(seen) == 5


def test_every_frame_is_one_size(cached, plain):
    walk = kv.stepper(cached, plain)
    sizes = set()
    for walk.cached in (True, False):
        for walk.step in range(NEW):
            sizes.add(Image.open(io.BytesIO(walk.frame)).size)
    assert sizes == {tuple(round(style.SHARPNESS * length) for length in walk.size)}


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("step", 14, "step 14: this recording has steps 0 to 6"),
        ("step", -1, "step -1: this recording has steps 0 to 6"),
        ("layer", 3, "layer 3: attention was kept for layers 0 to 2"),
        ("head", 6, "head 6: layer 1 has heads 0 to 5"),
    ],
)
def test_a_missing_step_or_layer_is_refused_with_those_there_are(cached, name, value, says):
    walk = kv.stepper(cached, layer=1)
    with pytest.raises(traitlets.TraitError, match=f"^{re.escape(says)}$"):
        setattr(walk, name, value)
    assert (walk.step, walk.layer, walk.head) == (0, 1, 0)
    with pytest.raises(ValueError, match=f"^{re.escape(says)}$"):
        kv.stepper(cached, **{"layer": 1, name: value})


def test_one_recording_has_no_other_to_switch_to(cached, plain):
    for run, is_cached in ((cached, True), (plain, False)):
        walk = kv.stepper(run)
        assert walk.cached is is_cached and not walk._about["switch"]
        with pytest.raises(traitlets.TraitError, match="this stepper's recording is with"):
            walk.cached = not is_cached
    assert kv.stepper(cached, plain)._about["switch"]
    assert not kv.stepper(cached, plain, beside=True)._about["switch"]


def test_beside_shows_both_runs_without_a_cache_on_the_left(cached, plain):
    walk = kv.stepper(cached, plain, step=3, layer=1, head=2, beside=True)
    both = kv.draw_side_by_side(plain, cached, step=3, layer=1, head=2, span=PROMPT + NEW - 1)
    assert walk.sentence == both.sentence
    assert walk.size == (both.width, both.height)


def test_a_sequence_of_a_batch(model):
    run = recorded(cached_loop, model, prompt(PROMPT, n_batch=2))
    assert "sequence 1" in kv.stepper(run, sequence=1).sentence
    with pytest.raises(ValueError, match="sequence 2: this recording has sequences 0 to 1"):
        kv.stepper(run, sequence=2)


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["run", None, 3, [1, 2]])
def test_only_a_recording_can_be_walked(given, cached):
    with pytest.raises(TypeError, match="run: expected a recording, .* but got"):
        kv.stepper(given)
    if given is not None:
        with pytest.raises(TypeError, match="uncached: expected a recording, .* but got"):
            kv.stepper(cached, given)


def test_recordings_that_cannot_be_walked_say_why(model, cached, plain):
    with pytest.raises(ValueError, match="run: this recording has no steps"):
        kv.stepper(recorded(lambda *_: None, model, None))
    counts = recorded(cached_loop, model, prompt(PROMPT), keep=())
    with pytest.raises(ValueError, match="run: attention was not kept"):
        kv.stepper(counts)
    with kv.record(model) as short:
        plain_loop(model, prompt(PROMPT), 3)
    with pytest.raises(ValueError, match="run has 7 steps, uncached has 3"):
        kv.stepper(cached, short)
    other = recorded(plain_loop, model, prompt(PROMPT, seed=1))
    with pytest.raises(ValueError, match="recordings of the same prompt"):
        kv.stepper(cached, other)
    with pytest.raises(ValueError, match="uncached: expected a recording without a cache"):
        kv.stepper(plain, cached)
    with pytest.raises(ValueError, match="beside=True: expected a second recording"):
        kv.stepper(cached, beside=True)
    other = recorded(plain_loop, model, prompt(PROMPT), layers=[1])
    some = recorded(cached_loop, model, prompt(PROMPT), layers=[0, 2])
    with pytest.raises(ValueError, match="at least one layer in common"):
        kv.stepper(some, other)


@pytest.mark.parametrize("given", [1.5, "1", True, None])
def test_a_step_is_a_whole_number(cached, given):
    with pytest.raises(ValueError, match="step: expected a whole number, but got"):
        kv.stepper(cached, step=given)
    assert kv.stepper(cached, step=np.int64(2)).step == 2


# --- what the browser asks ------------------------------------------------------------------


class Asked:
    """Stands in for the browser: sends requests to a stepper and keeps the answers."""

    def __init__(self, walk, monkeypatch):
        self.walk, self.got = walk, []
        monkeypatch.setattr(walk, "send", lambda said, buffers=(): self.got.append((said, buffers)))

    def __call__(self, *key):
        self.walk._handle_custom_msg({"frame": list(key)}, [])
        return self.got.pop()


def test_a_frame_is_sent_with_its_sentence_and_leaves_the_state_alone(cached, plain, monkeypatch):
    walk = kv.stepper(cached, plain, step=2)
    said, buffers = Asked(walk, monkeypatch)(False, 1, 4, 3)
    assert said["frame"] == [False, 1, 4, 3]
    assert said["sentence"] == kv.draw_step(plain, step=3, layer=1, head=4).sentence
    assert (walk.step, walk.cached) == (2, True)
    walk.step, walk.layer, walk.head, walk.cached = 3, 1, 4, False
    assert buffers == [walk.frame]


def test_an_error_in_rendering_is_sent_as_words_and_the_other_steps_can_be_walked(
    model, monkeypatch
):
    run = recorded(cached_loop, model, prompt(PROMPT))
    walk = kv.stepper(run)
    monkeypatch.setattr(run[3], "square", lambda *_: 1 / 0)
    ask = Asked(walk, monkeypatch)
    said, buffers = ask(True, 0, 0, 3)
    assert said["error"] == "step 3 could not be drawn: ZeroDivisionError: division by zero"
    assert not buffers
    assert "sentence" in ask(True, 0, 0, 4)[0]
    assert "sentence" in ask(True, 0, 0, 2)[0]
    shown, _ = walk._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in shown
    assert "ZeroDivisionError" in shown["text/plain"]


def test_other_messages_are_left_alone(cached, monkeypatch):
    walk = kv.stepper(cached)
    ask = Asked(walk, monkeypatch)
    walk._handle_custom_msg({"something": "else"}, [])
    assert ask.got == []


# --- the frames -----------------------------------------------------------------------------


def pixels(png: bytes) -> np.ndarray:
    """[H, W, 3] in 0 to 1, shrunk so that it doesn't matter where exactly a glyph's edge is."""
    image = Image.open(io.BytesIO(png)).convert("RGB")
    small = image.resize((image.width // 3, image.height // 3), Image.Resampling.BOX)
    return np.asarray(small, dtype=float) / 255


def differ(png: bytes, other: bytes) -> tuple[float, float]:
    """Root mean square difference where either has ink, and the largest difference anywhere."""
    one, two = pixels(png), pixels(other)
    assert one.shape == two.shape
    inked = (one < 0.97).any(-1) | (two < 0.97).any(-1)
    return float(np.sqrt(((one - two)[inked] ** 2).mean())), float(np.abs(one - two).max())


def alike(png: bytes, other: bytes) -> bool:
    typical, largest = differ(png, other)
    return typical < 0.005 and largest < 0.25


@pytest.mark.parametrize("kind", MADE)
def test_a_frame_is_the_picture(kind):
    for span in (None, 23):
        drawn = kv.draw_step(MADE[kind], span=span)
        press = frames.Press(kv.draw_step(MADE[kind], span=span).figure)
        plan = layout.plan([MADE[kind]], Room(span=span))
        for _ in range(2):  # some words are newly rendered, others stamped
            assert alike(press.print(plan), drawn.png())


def test_another_picture_is_told_apart():
    one, other = (kv.draw_step(MADE[kind], span=13) for kind in ("decode", "chunk"))
    assert not alike(one.png(), other.png())
    shares = squares.weights(7)[:, ::-1]  # different ink in one row
    moved = kv.draw_step(squares.decode(shares=shares), span=13)
    assert not alike(one.png(), moved.png())


def test_a_steppers_frames_are_its_figures_drawn_the_slow_way(cached, plain):
    for beside in (False, True):
        walk = kv.stepper(cached, plain, layer=1, head=2, beside=beside)
        for walk.cached in (True, False):
            for walk.step in (0, 3, 6):
                figure = walk._frames.make_figure(walk._frames.squares(*walk._key))
                assert alike(walk.frame, Picture(figure, "").png())


def test_frames_do_not_depend_on_which_were_drawn_before(cached, plain):
    ahead, back = (kv.stepper(cached, plain, layer=1) for _ in range(2))
    drawn = {}
    for ahead.step in range(NEW):
        drawn[ahead.step] = ahead.frame
    for back.step in reversed(range(NEW)):
        assert alike(back.frame, drawn[back.step])


@pytest.mark.parametrize("kind", MADE)
@pytest.mark.parametrize("more", [0, 4])
def test_the_legend_names_what_is_drawn(kind, more):
    square, span = MADE[kind], len(MADE[kind].column_states) + more
    figure = kv.draw_step(square, span=span).figure
    drawn = {a.get_gid().split(":")[1] for a in figure.axes[-1].collections}
    assert square.legend(span) & style.STATES.keys() == drawn


def test_one_legend_for_all_steps(cached, plain):
    walk = kv.stepper(cached, plain)
    assert walk._frames.room.states >= {
        "new",
        "recomputed",
        "read",
        "masked",
        "not computed",
        "ink",
    }
    assert "recomputed" not in kv.stepper(cached)._frames.room.states


def test_a_layer_that_says_more_has_the_same_size_as_the_others():
    run = recorded(cached_loop, gemma3(), prompt(PROMPT))
    run[6].gaps[0] = 0.5  # a window's columns and a doubt: one line more than in the others
    walk = kv.stepper(run)
    assert {"dropped", "read"} <= walk._frames.room.states
    assert walk._frames.room.lines == 3
    for layer, step in ((0, 6), (1, 6), (0, 0)):
        squares = walk._frames.squares(True, layer, 0, step)
        assert Picture(walk._frames.make_figure(squares), "").height == walk.size[1]


def test_the_room_for_the_sentence_is_that_of_the_longest(cached, plain):
    walk = kv.stepper(cached, plain)
    said = []
    for walk.cached in (True, False):
        for walk.step in range(NEW):
            said.append(walk.sentence)
    assert len(walk._about["longest"]) >= max(map(len, said))


def test_rcparams_are_left_alone_and_a_frame_does_not_follow_them(cached):
    walk, other = kv.stepper(cached, step=2), kv.stepper(cached, step=2)
    before = walk.frame
    with pyplot.rc_context({"font.size": 30, "axes.facecolor": "red", "text.color": "red"}):
        changed = dict(pyplot.rcParams)
        assert other.frame == before
        assert dict(pyplot.rcParams) == changed


# --- what it leaves behind ------------------------------------------------------------------


def walked(walk, n):
    for k in range(n):
        walk.step = k % NEW
        walk.layer, walk.head, walk.cached = k % 3, k % 6, bool(k % 2)
        assert walk.frame
    gc.collect()
    return psutil.Process().memory_info().rss / 2**20


def test_two_hundred_steps_leave_memory_flat_and_no_figure_open(cached, plain):
    walk = kv.stepper(cached, plain)
    before = walked(walk, 60)
    assert walked(walk, 200) - before < 8
    assert pyplot.get_fignums() == []
    assert len(walk._frames._kept) <= frames.KEPT
    assert len(walk._frames._press._ink._stamps) <= raster.STAMPS
    walk.close()
    assert not walk._frames._kept


# --- where no widget runs -------------------------------------------------------------------


@pytest.mark.parametrize("beside", [False, True])
def test_its_cell_shows_a_picture_and_words_where_no_widget_runs(cached, plain, beside):
    walk = kv.stepper(cached, plain, step=3, layer=1, head=2, beside=beside)
    shown, looks = walk._repr_mimebundle_()
    assert shown["text/plain"] == repr(walk) == walk.sentence
    assert shown["application/vnd.jupyter.widget-view+json"]["model_id"] == walk.model_id
    alt = html.unescape(re.search(r'<img alt="([^"]*)"', shown["text/html"])[1])
    strip = kv.draw_filmstrip(cached, uncached=plain, steps=range(6), layer=1, head=2)
    assert alt == strip.sentence
    assert base64.b64decode(shown["image/png"]) == strip.png()
    assert looks["image/png"] == {"width": strip.width, "height": strip.height}


def test_the_picture_shows_up_to_six_steps_around_the_start(model, cached):
    for step, steps in ((0, "0, 1, 2, 3, 4, 5"), (6, "1, 2, 3, 4, 5, 6")):
        shown, _ = kv.stepper(cached, step=step)._repr_mimebundle_()
        assert f"with a cache, steps {steps}:" in shown["text/html"]
    with kv.record(model) as longer:
        cached_loop(model, prompt(11), 9)
    shown, _ = kv.stepper(longer, step=8)._repr_mimebundle_()
    assert "with a cache, steps 6, 7, 8:" in shown["text/html"]


def test_its_repr_has_no_address_and_is_the_same_every_time(cached):
    assert repr(kv.stepper(cached, step=2)) == repr(kv.stepper(cached, step=2))
    assert "0x" not in repr(kv.stepper(cached))


def test_the_name_stays_a_function_whatever_is_imported():
    import kvviz.widgets.frames  # noqa: F401
    import kvviz.widgets.stepper  # noqa: F401

    assert callable(kv.stepper)
    assert "stepper" in kv.__all__ and "stepper" in dir(kv)


def test_the_page_asks_nobody_but_python():
    source = str(Stepper._esm)
    assert "export default" in source
    assert not re.search(r"\bimport\b|\bfetch\(|https?://|\brequire\(|jp-", source)


def test_the_sentence_says_what_is_drawn(cached, plain):
    square = cached[2].square(0, 1)
    assert describe([square], 0) == kv.draw_step(cached, step=2, layer=0, head=1).sentence
    artists = kv.draw_step(square).figure.axes[0].collections
    assert ("keys", 6) in find_cells(artists)


# -- pointing at a cell, and all heads -----------------------------------------------------------


@pytest.mark.parametrize("beside", [False, True])
def test_each_cell_is_where_the_browser_is_told_it_is(cached, plain, beside):
    """In the picture's pixels, the ink of each cell is the share that pointing at it shows."""
    walk = kv.stepper(cached, plain, step=3, layer=1, head=2, beside=beside)
    key = [True, 1, 2, 3]
    message, (png,) = walk.answer({"frame": key})
    pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
    assert len(message["cells"]) == 1 + beside
    for cells in message["cells"]:
        left, top, cell = cells["at"]
        for row, shares in zip(cells["rows"], cells["shares"], strict=True):
            for column, share in enumerate(shares):
                at = (left + (column + 0.12) * cell, top + (row + 0.12) * cell)
                x, y = (int(n * style.SHARPNESS) for n in at)
                if share is not None:
                    right = 255 * style.ink(share / 100)
                    assert np.abs(pixels[y, x] - right).max() <= 9, (row, column)
    assert message["cells"][-1]["rows"] == [cached[3].visible - 1]
    json.dumps(message)


def test_all_heads_are_boxes_of_one_picture(cached, plain):
    walk = kv.stepper(cached, plain, step=3, layer=1, head=2)
    message, (png,) = walk.answer({"heads": [False, 1, 3]})
    boxes = np.array([box for box, _ in message["boxes"]])
    assert png.startswith(b"\x89PNG") and len(boxes) == len(walk.runs[True][3].attention[1][0])
    assert (boxes >= -1e-9).all() and (boxes[:, :2] + boxes[:, 2:] <= 1 + 1e-9).all()
    assert all(said in message["sentence"] for _, said in message["boxes"])
    json.dumps(message)
    fault, _ = walk.answer({"heads": [False, 1, 99]})
    assert "step 99 could not be drawn" in fault["error"]
    assert walk.answer({"something": "else"}) is None
