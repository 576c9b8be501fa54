"""The stepper of a serving engine's run: its state, its frames, and the page that holds them."""

import io
import re

import browser
import pytest
import servings
import traitlets
from PIL import Image, ImageChops
from test_site import Opened

import kvviz as kv
from kvviz.drawing import style
from kvviz.recording.serving_run import ServingRun
from kvviz.widgets import page, site
from kvviz.widgets.serving_frames import VIEWS

STEPS = servings.shared_prefix()[:4]


@pytest.fixture(scope="module")
def walk():
    return kv.stepper(STEPS, step=1)


@pytest.fixture(scope="module")
def alone(walk, tmp_path_factory):
    """The page of one stepper."""
    return walk.save(tmp_path_factory.mktemp("alone") / "served.html")


def answer(walk, view, step):
    message, (png,) = walk.answer({"frame": [view, step]})
    return message["sentence"], Image.open(io.BytesIO(png)).convert("RGB")


def test_it_starts_with_the_pages_and_its_sentence_is_the_pictures(walk):
    assert (walk.step, walk.view) == (1, "pages")
    assert walk.sentence == repr(walk) == kv.draw_pages(STEPS, step=1).sentence
    assert answer(walk, "pass", 2)[0] == kv.draw_pass(STEPS, step=2).sentence
    waits = kv.draw_schedule(STEPS).sentence.partition(": ")[2]
    assert answer(walk, "schedule", 2)[0] == (
        "step 2: sky is fed 1 row, token out; sea is fed 5 rows, first token out; "
        f"sun is fed 13 rows, first token out. All steps: {waits}"
    )


def test_every_frame_of_a_view_is_one_size_and_steps_differ(walk):
    for view in VIEWS:
        frames = [answer(walk, view, step)[1] for step in range(len(STEPS))]
        width, height = walk._frames.rooms[view]
        assert {frame.size for frame in frames} == {
            (round(style.SHARPNESS * width), round(style.SHARPNESS * height))
        }
        for one, other in zip(frames, frames[1:], strict=False):
            assert ImageChops.difference(one, other).getbbox()


def test_a_step_or_view_that_is_not_there_is_refused(walk):
    with pytest.raises(traitlets.TraitError, match="step 4: this recording has steps 0 to 3"):
        walk.step = 4
    with pytest.raises(traitlets.TraitError, match="view"):
        walk.view = "memory"
    with pytest.raises(ValueError, match="view: expected one of 'pages', 'schedule', 'pass'"):
        kv.stepper(STEPS, view="memory")
    with pytest.raises(ValueError, match="step 9: this recording has steps 0 to 3"):
        kv.stepper(STEPS, step=9)
    with pytest.raises(ValueError, match="this recording has no steps"):
        kv.stepper(ServingRun())
    assert (walk.step, walk.view) == (1, "pages")


def test_a_view_is_only_for_an_engine(examples):
    with pytest.raises(ValueError, match="view: expected only with a recording made by"):
        kv.stepper(examples["run"], view="pages")
    with pytest.raises(TypeError, match="run: expected a recording"):
        kv.stepper(STEPS, examples["uncached"])


def test_its_cell_shows_the_picture_where_no_widget_runs(walk):
    bundle, _ = walk._repr_mimebundle_()
    assert bundle["text/plain"] == walk.sentence
    assert f'alt="{walk.sentence}"' in bundle["text/html"] and page.RUN_IT in bundle["text/html"]


def test_a_frame_that_cannot_be_drawn_says_why_and_the_others_can_be_walked():
    walk = kv.stepper(STEPS)
    draw = walk._frames.picture
    walk._frames.picture = lambda view, step: draw(view, 1 / 0 if view == "pages" else step)
    message, pictures = walk.answer({"frame": ["pages", 2]})
    assert message["error"].startswith("step 2 could not be drawn: ZeroDivisionError")
    assert not pictures and walk.answer({"frame": ["pass", 2]})[1]
    assert walk.answer({"other": 1}) is None
    walk.close()


def test_a_page_holds_the_view_it_starts_with_and_the_others_if_there_is_room(walk, monkeypatch):
    content = page.collect(walk)
    assert len(content["answers"]) == len(VIEWS) * len(STEPS)
    assert content["state"]["_about"]["views"] == [*VIEWS.items()]
    monkeypatch.setattr(page, "MOST_BYTES", 0)
    # Nothing else is drawn: other tests leave hundreds of steppers in this process.
    monkeypatch.setattr(site.live, "_instances", {walk.model_id: walk})
    content = page.collect(walk)
    assert content["state"]["_about"]["views"] == [("pages", "Pages")]
    assert "This page holds only part: Pages." in page.embed(walk)


def test_an_exported_notebook_holds_it_too(walk, monkeypatch):
    monkeypatch.setattr(page, "MOST_BYTES", 0)
    embedded = site.embed_steppers([(0, 0)])
    assert walk.model_id in embedded


@pytest.mark.skipif(
    browser.chromium() is None, reason=f"no browser found: none of {', '.join(browser.NAMES)}"
)
def test_a_page_steps_by_mouse_and_by_keyboard_with_no_network(walk, alone):
    with browser.browser() as chrome:
        opened = Opened(chrome, alone)
        opened.shows(answer(walk, "pages", 1)[0])
        opened.press("Next")
        opened.shows(answer(walk, "pages", 2)[0])
        opened.root.focus()
        opened.page.keyboard.press("ArrowRight")
        opened.shows(answer(walk, "pages", 3)[0])
        for view in ("schedule", "pass"):
            opened.menu("view").select_option(view)
            sentence, drawn = answer(walk, view, 3)
            opened.shows(sentence)
            assert ImageChops.difference(opened.pixels(), drawn).getbbox() is None
            assert opened.image.get_attribute("width") == str(walk._frames.rooms[view][0])
        opened.root.focus()
        opened.page.keyboard.press("Home")
        opened.shows(answer(walk, "pass", 0)[0])
        opened.page.keyboard.press("Shift+ArrowRight")  # these pictures have no cells to read
        assert opened.menu("view").locator("option").all_inner_texts() == [*VIEWS.values()]
        for gone in ("layer", "head"):
            assert opened.menu(gone).count() == 0
        assert opened.page.title() == "A serving engine, step by step"
        assert re.search("left and right arrow keys", opened.page.content())
        assert opened.faults == [] and opened.elsewhere() == [] and opened.serious() == []
        opened.context.close()
