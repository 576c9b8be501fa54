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
import torch
import traitlets
from matplotlib import pyplot
from matplotlib.colors import to_rgb
from PIL import Image
from small import cached_loop, gemma3, llama, plain_loop, prompt
from transformers import DynamicCache

import kvviz as kv
from kvviz.drawing import layout, marks, painting, raster, sentences, style
from kvviz.drawing.layout import Room
from kvviz.drawing.marks import find_cells
from kvviz.drawing.picture import Picture
from kvviz.drawing.sentences import describe
from kvviz.recording.step import KEEP
from kvviz.widgets import frames, pointing, zoom
from kvviz.widgets.stepper import Stepper

PROMPT, NEW = 5, 7
MADE = {
    "prefill": squares.prefill(),
    "decode": squares.decode(),
    "plain": squares.plain(),
    "chunk": squares.chunk(),
    "cropped": squares.guesses(),
    "all cropped": squares.guesses(6, 5, 1),
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


def test_it_starts_at_the_first_step_with_the_cache_and_at_the_telling_head(model, cached, plain):
    walk = kv.stepper(cached, plain)
    assert (walk.step, walk.cached) == (0, True)
    assert (walk.layer, walk.head) == cached.choose_head()
    some = recorded(cached_loop, model, prompt(PROMPT), layers=[1, 2])
    other = recorded(plain_loop, model, prompt(PROMPT), layers=[2])
    walk = kv.stepper(some, other)  # only what both kept
    assert walk.layer == 2 and (2, walk.head) == some.choose_head([2])


def test_given_a_layer_or_a_head_the_other_is_the_first(model, cached):
    assert kv.stepper(cached, layer=2).head == 0
    assert kv.stepper(cached, head=3).layer == 0
    some = recorded(cached_loop, model, prompt(PROMPT), layers=[1, 2])
    assert kv.stepper(some, head=3).layer == 1


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
    assert shown["text/html"].endswith("<p>Run this cell to step through it.</p>")
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


@pytest.fixture(scope="module")
def guessed(model):
    """Five tokens, then four of which three are cropped, then two, both kept, and one."""
    cache = DynamicCache(config=model.config)
    with torch.no_grad(), kv.record(model) as run:
        for n, extra in ((PROMPT, 0), (4, 3), (2, 0), (1, 0)):
            model(prompt(n, seed=n), cache=cache)
            if extra:
                cache.crop(-extra)
    return run


def test_frames_tell_cropped_rows_and_the_next_token_takes_their_column(guessed):
    walk = kv.stepper(guessed, layer=1, head=2)
    assert "cropped" in walk._frames.room.states
    for walk.step in range(4):
        figure = walk._frames.make_figure(walk._frames.squares(*walk._key))
        assert alike(walk.frame, Picture(figure, "").png())
        assert ("4 rows fed: 1 kept, 3 cropped afterwards" in walk.sentence) == (walk.step == 1)
    _, now, then, _ = (step.square(1, 2) for step in guessed)
    assert now.cropped == (6, 7, 8) and then.row_positions == (6, 7)
    assert then.n_columns == 8 < now.n_columns == 9, "the columns shrink"
    assert then.tokens[6] != now.tokens[6]


def test_a_saved_page_tells_what_was_cropped(guessed, tmp_path):
    page = kv.stepper(guessed, layer=1, head=2).save(tmp_path / "page.html").read_text("utf-8")
    assert page.count("4 rows fed: 1 kept, 3 cropped afterwards") >= 1
    assert "computed now and written to the cache, cropped afterwards" in page


def test_pointing_at_a_cropped_cell_says_so(guessed):
    walk = kv.stepper(guessed, layer=1, head=2)
    said = {}
    for step in range(4):
        (cells,) = walk.answer({"frame": [True, 1, 2, step]})[0]["cells"]
        said[step] = {
            role: [pointing.WORDS[n] for n in states] for role, states in cells["states"].items()
        }
        assert cells.get("cropped") == ([6, 7, 8] if step == 1 else None)
        json.dumps(cells)
    whole, gone = "computed now and written to the cache", "cropped afterwards"
    for role in ("keys", "values"):
        assert said[1][role][-4:] == [whole] + [f"{whole}, {gone}"] * 3
    for role in ("queries", "outputs"):
        assert said[1][role] == ["computed now"] + [f"computed now, {gone}"] * 3
    assert gone not in str([said[step] for step in (0, 2, 3)])


def test_thumbnails_are_paler_in_rows_that_were_cropped(guessed):
    _, (png, *_) = kv.stepper(guessed, layer=1).answer({"heads": [True, 1, 1]})
    image, square = np.asarray(Image.open(io.BytesIO(png))), guessed[1].square(1, 0)
    high, wide = image.shape[0] / 4, image.shape[1] / 9
    for row, faded in enumerate((False, True, True, True)):
        full = 255 * style.ink(square.weights[row, 2])
        shown = image[int((row + 0.3) * high), int(2.3 * wide)]
        want = style.VEILED * full + 255 * (1 - style.VEILED) if faded else full
        assert np.abs(shown - want).max() <= 1


def test_pictures_of_several_steps_tell_what_was_cropped(guessed):
    strip = kv.draw_filmstrip(guessed, steps=range(4), layer=1)
    assert "columns 5, 9, 8, 9; cropped afterwards 0, 3, 0, 0; at the end" in strip.sentence
    gone = {
        (role, n)
        for n, ax in enumerate(strip.figure.axes[:4])
        for (role, _), state in find_cells(ax.collections).items()
        if state == "cropped"
    }
    assert gone == {(role, 1) for role in style.ROLES if role != "attention"}
    still = kv.draw_filmstrip(guessed, steps=[2, 3], layer=1)
    assert "cropped" not in still.sentence
    pair = kv.draw_side_by_side(guessed, step=(1, 2), layer=1)
    assert "1 kept, 3 cropped afterwards" in pair.sentence.split("right: ")[0]
    assert "cropped" not in pair.sentence.split("right: ")[1]
    assert "4 rows fed: 1 kept, 3 cropped" in kv.animate(guessed, steps=[0, 1]).sentence


def test_every_head_has_a_picture_and_says_what_it_attends_to(cached, plain):
    walk = kv.stepper(cached, plain, step=3, layer=1, head=2)
    for is_cached, rows in ((True, 1), (False, PROMPT + 3)):
        message, pictures = walk.answer({"heads": [is_cached, 1, 3]})
        run = walk.runs[is_cached]
        assert message["rows"] == rows
        assert len(pictures) == len(message["sentences"]) == run[3].attention[1].shape[1]
        for head, (png, says) in enumerate(zip(pictures, message["sentences"], strict=True)):
            square = run[3].square(1, head)
            assert says == sentences.describe_head(square)
            image = np.asarray(Image.open(io.BytesIO(png)))
            high, wide = (n / cells for n, cells in zip(image.shape, (rows, 8), strict=False))
            for r, c in zip(*square.attention_cells()["ink"], strict=True):
                shown = image[int((r + 0.3) * high), int((c + 0.3) * wide)]
                assert np.abs(shown - 255 * style.ink(square.weights[r, c])).max() <= 1
            assert image.shape[0] >= 40, "a single row is seen, too"
        json.dumps(message)
    fault, _ = walk.answer({"heads": [False, 1, 99]})
    assert "step 99 could not be drawn" in fault["error"]
    assert walk.answer({"something": "else"}) is None


def test_each_cell_of_an_edge_is_where_the_browser_is_told_it_is(cached, plain):
    """In the picture's pixels, its colour is that of its role and of the state that is said."""
    fills = {"written": "new"}
    names = dict(zip(pointing.NUMBERS.values(), pointing.NUMBERS, strict=True))
    for step in (0, 3):
        walk = kv.stepper(cached, plain, step=step, layer=1, head=2, beside=True)
        message, (png,) = walk.answer({"frame": [True, 1, 2, step]})
        pixels = np.asarray(Image.open(io.BytesIO(png)).convert("RGB"))
        for cells, is_cached in zip(message["cells"], (False, True), strict=True):
            (left, top, cell), (gap, thick) = cells["at"], cells["edge"]
            near, far = -gap - 0.8 * thick, cells["span"] * cell + gap + 0.2 * thick
            n_rows = len(cells["rows"])
            for role, states in cells["states"].items():
                assert len(states) == (PROMPT + step if role in ("keys", "values") else n_rows)
                for n, state in enumerate(states):
                    across = role in ("keys", "values")
                    along = 0.2 * cell + cell * (n if across else cells["rows"][n])
                    out = near if role in ("keys", "queries") else far
                    x, y = (along, out) if across else (out, along)
                    at = int(style.SHARPNESS * (top + y)), int(style.SHARPNESS * (left + x))
                    state = names[state]
                    color = style.fill(role, fills.get(state, state))
                    right = 255 * np.array(to_rgb(color))
                    assert np.abs(pixels[at] - right).max() <= 9, (role, n, state)
            written = "written" if is_cached else "new"
            assert names[cells["states"]["keys"][-1]] == written
            assert cells["widths"] == dict.fromkeys(cells["states"], 22)
            assert "numbers" not in cells, "the recording kept none"


def test_the_first_numbers_of_what_was_kept_are_told(model):
    run = recorded(cached_loop, model, prompt(PROMPT), keep=KEEP)
    cells = kv.stepper(run, step=3)._frames.cells(True, 1, 5, 3)[0]
    for role in ("keys", "values"):  # heads 3 to 5 read the second of two key/value heads
        kept = getattr(run[3], role)[1][0, 1]
        assert np.allclose(cells["numbers"][role], kept[:, :3], atol=0.0051)
    for role in ("queries", "outputs"):
        assert np.allclose(
            cells["numbers"][role], getattr(run[3], role)[1][0, 5, :, :3], atol=0.0051
        )
    json.dumps(cells)


# -- early steps are drawn larger ----------------------------------------------------------------


@pytest.fixture(scope="module")
def long(model):
    with kv.record(model) as run:
        cached_loop(model, prompt(PROMPT), 30)
    with kv.record(model) as other:
        plain_loop(model, prompt(PROMPT), 30)
    return run, other


@pytest.mark.parametrize("beside", [False, True])
def test_early_steps_are_larger_in_frames_of_one_size_and_columns_seldom_move(long, beside):
    walk = kv.stepper(*long, beside=beside)
    sizes, told = set(), []
    for walk.step in range(30):
        sizes.add(Image.open(io.BytesIO(walk.frame)).size)
        told.append(walk._frames.cells(*walk._key)[0])
    assert len(sizes) == 1
    assert [cells["span"] for cells in told] == [12] * 8 + [24] * 12 + [34] * 10
    places = {tuple(cells["at"]) for cells in told}
    assert len(places) == 3, "two moves in thirty steps"
    cell = [cells["at"][2] for cells in told]
    assert cell[0] > 1.2 * cell[8] > 1.2 * cell[20]
    walk.zooms = False
    walk.step = 0
    assert walk._frames.cells(*walk._key)[0]["span"] == 34
    assert Image.open(io.BytesIO(walk.frame)).size in sizes


@pytest.mark.parametrize("step", [0, 9, 29])
def test_a_zoomed_frame_is_its_figure_drawn_the_slow_way_and_fits(long, step):
    walk = kv.stepper(*long, step=step, beside=True)
    squares = walk._frames.squares(*walk._key)
    assert alike(walk.frame, Picture(walk._frames.make_figure(squares), "").png())
    plan = walk._frames.plan(squares)
    assert plan.span * plan.cell + 2 * plan.edge <= plan.panel_width - 2 * 75
    whole = layout.plan(squares, walk._frames.room)
    assert plan.span * plan.cell + 2 * plan.edge <= whole.span * whole.cell + 2 * whole.edge + 0.01


def test_frames_of_a_batch_or_a_static_cache_are_pointed_at_where_they_are():
    for made in (squares.static(), squares.window(), squares.padded()):
        plan = zoom.plan_zoomed([made], Room(span=made.n_columns + 20, low=True))
        figure = painting.make_figure(plan)
        ax = figure.axes[0]
        x, y = ax.transData.transform((0, 0))
        told = zoom.find_first_cell(plan, 0)
        assert np.allclose(told[:2], (x, figure.bbox.height - y), atol=0.6)
        assert abs(told[2] - marks.measure_cell(ax)) < 0.01
