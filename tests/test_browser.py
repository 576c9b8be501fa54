"""Use the stepper in JupyterLab, in a real browser, by mouse and by keyboard."""

import re
import time
from urllib.parse import urlsplit

import browser
import nbformat
import pytest
import small
import torch
from axe_playwright_python.sync_playwright import Axe
from matplotlib.figure import Figure
from nbconvert import HTMLExporter
from nbformat import v4
from playwright.sync_api import expect
from transformers import DynamicCache

import kvviz as kv
from benchmarks.stepper import measure_clicks
from kvviz.drawing.picture import Picture
from kvviz.widgets import placed, pointing
from tools.notebooks import ROOT, canonical, read, text_of

pytestmark = pytest.mark.skipif(
    browser.chromium() is None, reason=f"no browser found: none of {', '.join(browser.NAMES)}"
)
COURSE = ["00-start-here", "03-keep-the-horizontal-edges"]
MADE = [
    browser.SETUP,
    "kv.stepper(cached, plain, step=3, layer=1, head=2)",
    "kv.stepper(cached, plain, step=3, layer=1, head=2, beside=True)",
    "broken = recorded(6, True)\nw = kv.stepper(broken)\nbroken[3].square = lambda *_: 1 / 0\nw",
    """import time
slow = kv.stepper(recorded(40, True))
drawn = slow._frames.frame
slow._frames.frame = lambda *key: time.sleep(0.08) or drawn(*key)
slow""",
    "panel = kv.memory_panel(model, tokens=7)\npanel",
]
FOLDED = "left: step 4 attends to 10 columns"  # the answer to a question
RECORDED_SLOWLY = """import time
from kvviz import progress
progress.DELAY = 0.2
print("before")
for _ in progress.bar(range(15), shown=True, desc="recorded", unit=" steps"):
    time.sleep(0.2)
print("after")"""
NOTES_SEEN = """window.notesSeen = [];
new MutationObserver(() => {
  const note = document.querySelector(".kvviz-progress");
  if (note) window.notesSeen.push(note.textContent);
}).observe(document, { childList: true, subtree: true, characterData: true });"""
SWITCHED, BESIDE, BROKEN, SLOW = range(4)
WIDGETS = (
    "[w for w in __import__('ipywidgets').widgets.widget._instances.values() "
    "if type(w).__name__ in ('Stepper', 'MemoryPanel')]"
)
STEPPERS = f"[w for w in {WIDGETS} if type(w).__name__ == 'Stepper']"
DIGEST = """async (image) => {
  const bytes = await (await fetch(image.src)).arrayBuffer();
  return [...new Uint8Array(await crypto.subtle.digest("SHA-1", bytes))].join();
}"""
LISTS = ("layer", "head")
FRAME = re.compile(rb'"frame": ?\[(?:true|false), ?\d+, ?\d+, ?(\d+)\]')
CHANGES = """(image) => {
  window.changes = 0;
  new MutationObserver(() => window.changes++).observe(image, { attributes: true });
}"""


def make_folded():
    """A notebook whose one cell has a picture as its output, folded."""
    shown, _ = Picture(Figure((2, 1)), FOLDED)._repr_mimebundle_()
    nb = nbformat.reads(browser.notebook(["draw()"]), as_version=4)
    nb.cells[0].metadata = {"jupyter": {"outputs_hidden": True}}
    nb.cells[0].outputs = [v4.new_output("execute_result", shown, execution_count=1)]
    return nbformat.writes(nb)


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("lab")
    for name in COURSE:
        nb = read(ROOT / f"notebooks/{name}.ipynb")
        # The notebook's own tests run what comes after the last stepper.
        last = max(k for k, cell in enumerate(nb.cells) if "stepper(" in cell.source)
        nb.cells = nb.cells[: last + 1]
        (folder / f"{name}.ipynb").write_text(text_of(canonical(nb)))
    (folder / "made.ipynb").write_text(browser.notebook(MADE))
    (folder / "folded.ipynb").write_text(make_folded())
    (folder / "slow.ipynb").write_text(browser.notebook([RECORDED_SLOWLY]))
    with browser.jupyterlab(folder) as lab:
        yield lab


@pytest.fixture(scope="module")
def chrome():
    with browser.browser() as chrome:
        yield chrome


class Opened:
    """A notebook that was run in the browser, and what the page logged and requested meanwhile."""

    def __init__(self, chrome, lab, name):
        self.page = chrome.new_page(viewport={"width": 1280, "height": 1000})
        self.faults, self.addresses, self.frames = [], [], []
        self.page.on("console", lambda said: said.type == "error" and self.faults.append(said.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("request", lambda request: self.addresses.append(request.url))
        self.page.on("websocket", self._watch)
        self.client = browser.run_all(self.page, lab, f"{name}.ipynb")
        n = browser.ask(self.client, f"len({WIDGETS})")
        expect(self.page.locator(".kvviz-stepper, .kvviz-panel")).to_have_count(n)
        self.steppers = self.page.locator(".kvviz-stepper").all()

    def _watch(self, socket) -> None:
        """Note which frames are requested and answered: ("requested" or "answered", step)."""

        def keep(name):
            def parse(sent):
                sent = sent if isinstance(sent, bytes) else sent.encode()
                if found := FRAME.search(sent):
                    self.frames.append((name, int(found[1])))

            return parse

        socket.on("framesent", keep("requested"))
        socket.on("framereceived", keep("answered"))

    def python(self, which: int, expression: str, first: str = "") -> object:
        """The kernel's value of an expression about the stepper `w`."""
        first = f"w = {STEPPERS}[{which}]\n{first}"
        return browser.ask(self.client, expression, first=first)

    def in_python(self, which: int, expression: str, expected) -> None:
        """Wait until Python knows of a move, which takes a moment, or longer on a busy machine."""
        deadline = time.monotonic() + browser.PATIENCE
        while (found := self.python(which, expression)) != expected:
            assert time.monotonic() < deadline, f"in Python it is still {found}, not {expected}"
            self.page.wait_for_timeout(100)

    def sentences(self, which: int) -> list[str]:
        """Each step's sentence, from Python, for the current layer, head and run."""
        said = "w._frames.sentence(w.cached, w.layer, w.head, k)"
        return self.python(which, f"[{said} for k in range(w._steps)]")

    def requested(self) -> list[int]:
        """The step of each frame that the page has requested, oldest first."""
        return [step for name, step in self.frames if name == "requested"]

    def ready(self, which: int) -> list[str]:
        """Wait until all answers have come, scroll to a stepper, and return its sentences."""
        self.page.wait_for_timeout(200)  # the state goes to Python 120 ms after a move
        root = self.steppers[which]
        layer, head = (int(root.locator(f"select[data-name={n}]").input_value()) for n in LISTS)
        self.in_python(which, "[w.layer, w.head, w.step]", [layer, head, self.step(which)])
        sentences = self.sentences(which)
        self.shows(which, sentences[self.step(which)])
        deadline, before = time.monotonic() + browser.PATIENCE, None
        while before != (before := (len(self.requested()), self.place(which)["y"])):
            assert time.monotonic() < deadline, "the stepper never comes to rest"
            root.evaluate("(root) => root.scrollIntoView({ block: 'start' })")
            self.page.wait_for_timeout(250)  # cells above are laid out as they come into view
        return sentences

    def shows(self, which: int, sentence) -> None:
        expect(self.image(which)).to_have_attribute("alt", sentence)
        expect(self.steppers[which].locator(".kv-words [aria-live]")).to_have_text(sentence)

    def step(self, which: int) -> int:
        return int(self.slider(which).input_value())

    def image(self, which: int):
        return self.steppers[which].locator(".kv-picture img")

    def slider(self, which: int):
        return self.steppers[which].get_by_role("slider")

    def press(self, which: int, name: str) -> None:
        self.steppers[which].get_by_role("button", name=name, exact=True).click(force=True)

    def place(self, which: int) -> dict[str, float]:
        """Where on the screen the stepper is, and how large."""
        return self.steppers[which].bounding_box()


@pytest.fixture(scope="module")
def opened(request, chrome, lab):
    opened = Opened(chrome, lab, request.param)
    yield opened
    opened.client.stop_channels()
    opened.page.close()


course = pytest.mark.parametrize("opened", COURSE, indirect=True)
made = pytest.mark.parametrize("opened", ["made"], indirect=True)
every_notebook = pytest.mark.parametrize("opened", [*COURSE, "made"], indirect=True)


@course
def test_every_stepper_walks_by_mouse_and_by_keyboard(opened):
    """To the end and back: sentence and pixels change as expected, and nothing jumps."""
    assert opened.steppers, "no stepper in this notebook"
    for which, root in enumerate(opened.steppers):
        opened.press(which, "First")
        sentences = opened.ready(which)
        image, place, last = opened.image(which), opened.place(which), len(sentences) - 1
        before = image.evaluate(DIGEST)
        for move, step in enumerate([*range(1, last + 1), *range(last - 1, -1, -1)]):
            if move % 2:
                opened.press(which, "Next" if move < last else "Previous")
            else:
                root.focus()
                opened.page.keyboard.press("ArrowRight" if move < last else "ArrowLeft")
            opened.shows(which, sentences[step])
            now = image.evaluate(DIGEST)
            assert now != before, f"move {move} left the picture as it was"
            before = now
        assert opened.place(which) == place
        opened.in_python(which, "w.step", 0)


@made
def test_other_keys_and_buttons(opened):
    sentences, root = opened.ready(SWITCHED), opened.steppers[SWITCHED]
    root.focus()
    for key, step in (("End", 11), ("ArrowLeft", 10), ("Home", 0), ("ArrowRight", 1)):
        opened.page.keyboard.press(key)
        opened.shows(SWITCHED, sentences[step])
    for name, step in (("Next", 2), ("Previous", 1), ("Next", 2), ("First", 0)):
        opened.press(SWITCHED, name)
        opened.shows(SWITCHED, sentences[step])
    opened.slider(SWITCHED).fill("7")
    opened.shows(SWITCHED, sentences[7])
    opened.page.keyboard.press("ArrowRight")  # on the slider itself: one step, not two
    opened.shows(SWITCHED, sentences[8])


@made
def test_it_stops_at_both_ends_and_says_so(opened):
    sentences, root = opened.ready(SWITCHED), opened.steppers[SWITCHED]
    button = {name: root.get_by_role("button", name=name) for name in ("First", "Previous", "Next")}
    for end, key, step, inert in (
        ("End", "ArrowRight", 11, ["Next"]),
        ("Home", "ArrowLeft", 0, ["First", "Previous"]),
    ):
        root.focus()
        opened.page.keyboard.press(end)
        opened.shows(SWITCHED, sentences[step])
        for name, each in button.items():
            expect(each).to_have_attribute("aria-disabled", str(name in inert).lower())
        for name in inert:
            button[name].click(force=True)  # Playwright waits for a button that says it's enabled
            assert opened.step(SWITCHED) == step
            expect(button[name]).to_be_focused()
        opened.page.keyboard.press(key)
        assert opened.step(SWITCHED) == step
        opened.shows(SWITCHED, sentences[step])
        assert serious(opened) == []


@made
def test_play_at_the_end_starts_again_once(opened):
    sentences = opened.ready(SWITCHED)
    opened.slider(SWITCHED).fill("11")
    opened.press(SWITCHED, "Play")
    opened.shows(SWITCHED, sentences[0])
    opened.slider(SWITCHED).fill("10")  # moving by hand pauses
    opened.press(SWITCHED, "Play")
    opened.shows(SWITCHED, sentences[11])
    expect(opened.steppers[SWITCHED].get_by_role("button", name="Play")).to_be_visible()
    opened.page.wait_for_timeout(1500)
    assert opened.step(SWITCHED) == 11


@made
def test_only_the_keys_it_uses_are_kept_from_the_page(opened):
    """Ctrl+S saves and Ctrl+B opens the side bar wherever the focus is; a letter edits no cell."""
    opened.ready(SWITCHED)
    root, page = opened.steppers[SWITCHED], opened.page
    dirty, side = page.locator(".lm-TabBar-tab.jp-mod-dirty"), page.locator("#jp-left-stack")
    controls = [opened.slider(SWITCHED), root.get_by_role("button").first, root]
    for focused in [*controls, root.get_by_role("combobox").first]:
        page.evaluate("window.jupyterapp.shell.currentWidget.context.model.dirty = true")
        expect(dirty).to_have_count(1)
        focused.focus()
        page.keyboard.press("Control+s")
        expect(dirty).to_have_count(0)
        was = side.is_visible()
        focused.focus()
        page.keyboard.press("Control+b")
        expect(side).to_be_visible(visible=not was)
        focused.focus()
        for key in ("a", "b", "d", "d", "x", "z"):  # each would edit the notebook's cells
            page.keyboard.press(key)
        expect(dirty).to_have_count(0)
    page.keyboard.press("Control+b")
    assert opened.page.locator(".jp-CodeCell").count() == len(MADE)


@made
def test_menus_and_switch(opened):
    opened.ready(SWITCHED)
    root, step = opened.steppers[SWITCHED], opened.step(SWITCHED)
    place = opened.place(SWITCHED)
    root.get_by_role("combobox", name="Layer").select_option("2")
    root.get_by_role("combobox", name="Head").select_option("5")
    root.get_by_role("switch", name="With the cache").click()
    opened.in_python(SWITCHED, "[w.cached, w.layer, w.head, w.step]", [False, 2, 5, step])
    plain = opened.sentences(SWITCHED)[step]
    assert plain.startswith(f"step {step}, layer 2, head 5:") and "recomputed" in plain
    opened.shows(SWITCHED, plain)
    root.get_by_role("switch", name="With the cache").click()
    opened.in_python(SWITCHED, "w.cached", True)
    with_cache = opened.sentences(SWITCHED)[step]
    assert "recomputed" not in with_cache
    opened.shows(SWITCHED, with_cache)
    assert opened.place(SWITCHED) == place
    assert opened.steppers[BESIDE].get_by_role("switch").count() == 0
    expect(opened.image(BESIDE)).to_have_attribute("alt", re.compile("^left: .* right: "))


@made
def test_python_moves_the_browser(opened):
    opened.ready(SWITCHED)
    for step in (9, 2):
        said = opened.python(SWITCHED, "w.sentence", first=f"w.step, w.layer = {step}, 0")
        opened.shows(SWITCHED, said)
        assert opened.step(SWITCHED) == step
        expect(opened.steppers[SWITCHED].get_by_role("combobox", name="Layer")).to_have_value("0")


@made
def test_play_walks_on_until_paused(opened):
    """test_site checks the pace, because it can set the page's clock."""
    sentences = opened.ready(SWITCHED)
    opened.press(SWITCHED, "First")
    opened.press(SWITCHED, "Play")
    slider = opened.slider(SWITCHED).element_handle()
    opened.page.wait_for_function("(slider) => Number(slider.value) >= 2", arg=slider)
    opened.press(SWITCHED, "Pause")
    step = opened.step(SWITCHED)
    opened.page.wait_for_timeout(1300)
    assert opened.step(SWITCHED) == step
    opened.shows(SWITCHED, sentences[step])
    opened.press(SWITCHED, "Play")
    opened.press(SWITCHED, "Next")  # moving by hand pauses
    expect(opened.steppers[SWITCHED].get_by_role("button", name="Play")).to_be_visible()


@made
def test_a_frame_seen_before_asks_python_for_nothing(opened):
    sentences = opened.ready(BESIDE)
    for step in range(12):
        opened.slider(BESIDE).fill(str(step))
        opened.shows(BESIDE, sentences[step])
    opened.ready(BESIDE)
    before = len(opened.requested())
    for step in range(12):
        opened.slider(BESIDE).fill(str(step))
        opened.shows(BESIDE, sentences[step])
    opened.page.wait_for_timeout(300)
    assert len(opened.requested()) == before > 0


@made
def test_the_bench_of_clicks_runs_on_a_stepper(opened):
    opened.ready(SWITCHED)
    root = opened.steppers[SWITCHED]
    root.get_by_role("combobox", name="Head").select_option("0")
    opened.ready(SWITCHED)
    seen, new = measure_clicks(opened.page, root, n_steps=1, n_heads=1)
    assert seen > 0 and new > 0


@made
def test_a_held_key_leaves_no_backlog_even_if_drawing_is_slow(opened):
    """One request at a time; once the key is up, only for the last step and its neighbours."""
    sentences, page = opened.ready(SLOW), opened.page
    opened.press(SLOW, "First")
    opened.shows(SLOW, sentences[0])
    opened.steppers[SLOW].focus()
    before = len(opened.frames)
    for _ in range(30):
        page.keyboard.down("ArrowRight")  # again and again: the key repeats
        page.wait_for_timeout(30)
    page.keyboard.up("ArrowRight")
    step, released = opened.step(SLOW), len(opened.frames)
    assert step == 30
    opened.shows(SLOW, sentences[step])
    waiting = 0
    for name, _ in opened.frames[before:]:
        waiting += 1 if name == "requested" else -1
        assert 0 <= waiting <= 1, opened.frames[before:]
    late = {each for name, each in opened.frames[released:] if name == "requested"}
    assert late <= {step, step + 1, step - 1, step + 2}
    assert "answered" in dict(opened.frames[before:])
    opened.image(SLOW).evaluate(CHANGES)
    page.wait_for_timeout(1500)
    assert page.evaluate("window.changes") == 0
    assert opened.image(SLOW).get_attribute("alt") == sentences[step]
    opened.in_python(SLOW, "w.step", step)


@made
def test_a_step_that_cannot_be_drawn_is_said_and_the_others_can_be_walked(opened):
    opened.steppers[BROKEN].scroll_into_view_if_needed()
    root, place = opened.steppers[BROKEN], opened.place(BROKEN)
    alarm = root.get_by_role("alert")
    opened.slider(BROKEN).fill("3")
    expect(alarm).to_have_text("step 3 could not be drawn: ZeroDivisionError: division by zero")
    expect(opened.image(BROKEN)).to_be_hidden()
    opened.press(BROKEN, "Next")
    expect(opened.image(BROKEN)).to_have_attribute("alt", re.compile("^step 4,"))
    expect(opened.image(BROKEN)).to_be_visible()
    expect(alarm).to_be_hidden()
    assert opened.place(BROKEN) == place


def serious(opened, context=".kvviz-stepper"):
    """The serious or critical problems that axe finds in the steppers, or in another element."""
    found = Axe().run(opened.page, context=context).response["violations"]
    return [
        (each["id"], each["help"]) for each in found if each["impact"] in ("serious", "critical")
    ]


def theme(opened, name):
    change = f"window.jupyterapp.commands.execute('apputils:change-theme', {{ theme: '{name}' }})"
    opened.page.evaluate(change)
    light = str("Light" in name).lower()
    expect(opened.page.locator("body")).to_have_attribute("data-jp-theme-light", light)


@made
@pytest.mark.parametrize("name", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_serious_in_either_theme(opened, name):
    opened.ready(SWITCHED)
    theme(opened, name)
    assert serious(opened) == []
    theme(opened, "JupyterLab Light")


@made
def test_axe_sees_a_picture_without_alt_and_a_control_without_label(opened):
    opened.ready(SWITCHED)
    alt = opened.image(SWITCHED).evaluate(
        "(image) => { const alt = image.alt; image.removeAttribute('alt'); return alt; }"
    )
    assert [rule for rule, _ in serious(opened)] == ["image-alt"]
    opened.image(SWITCHED).evaluate("(image, alt) => { image.alt = alt; }", alt)
    assert serious(opened) == []


@made
def test_it_looks_the_same_in_the_dark_theme(opened):
    opened.ready(SWITCHED)
    root = opened.steppers[SWITCHED]
    seen = []
    for name in ("JupyterLab Light", "JupyterLab Dark"):
        theme(opened, name)
        opened.page.wait_for_timeout(300)
        seen.append(root.locator(".kv-words, .kv-picture, .kv-controls").first.screenshot())
    theme(opened, "JupyterLab Light")
    assert seen[0] == seen[1]


@made
def test_controls_are_large_enough_and_named(opened):
    root = opened.steppers[SWITCHED]
    for name in ("First", "Previous", "Play", "Next"):
        box = root.get_by_role("button", name=name, exact=True).bounding_box()
        assert min(box["width"], box["height"]) >= 24
    for control in ("select", "input[type=range]"):
        assert root.locator(control).first.bounding_box()["height"] >= 24
    assert root.get_by_label("Step", exact=True).get_attribute("aria-valuetext")


@made
def test_a_cell_is_read_by_pointing_and_by_keyboard(opened):
    opened.ready(SWITCHED)
    root, page = opened.steppers[SWITCHED], opened.page
    reading, mark = root.locator(".kv-point"), root.locator(".kv-mark")
    cells = "w._frames.cells(w.cached, w.layer, w.head, w.step)[0]"
    told, picture = opened.python(SWITCHED, cells), opened.image(SWITCHED).bounding_box()
    left, top, cell = told["at"]
    row, at = told["rows"][-1], 2
    share, names = told["shares"][-1][at], [told["tokens"][n] for n in (row, at)]
    said = f"'{names[0]}' (position {row}) attends to '{names[1]}' (position {at}): {share}%"
    page.mouse.move(
        picture["x"] + left + (at + 0.5) * cell, picture["y"] + top + (row + 0.5) * cell
    )
    expect(reading).to_have_text(said)
    box = mark.bounding_box()
    assert abs(box["x"] - picture["x"] - left - at * cell) < 2 and abs(box["width"] - cell) < 2
    page.mouse.move(5, 5)
    expect(mark).to_be_hidden()
    root.focus()
    page.keyboard.press("Shift+ArrowDown")
    most = told["shares"][-1].index(max(told["shares"][-1]))
    expect(reading).to_have_text(re.compile(rf"\(position {most}\): {max(told['shares'][-1])}%$"))
    page.keyboard.press("Shift+ArrowUp")
    expect(reading).to_have_text(re.compile(r"this row was not computed|attends to"))
    assert opened.step(SWITCHED) == told["rows"][-1] - 5, "the step stayed"


def test_pointing_at_a_cell_of_a_cropped_row_says_so(chrome):
    model, cache = small.llama(), DynamicCache()
    with torch.no_grad(), kv.record(model) as run:
        for n, extra in ((5, 0), (4, 3), (1, 0)):
            model(small.prompt(n, seed=n), cache=cache)
            if extra:
                cache.crop(-extra)
    cells = kv.stepper(run, step=1).answer({"frame": [True, 0, 0, 1]})[0]["cells"]
    source = (placed.HERE / "pointing.js").read_text("utf-8")
    page = chrome.new_page()

    def point(row, column):
        at = {"square": 0, "row": row, "column": column}
        call = "([source, ...given]) => new Function(`${source}; return describeCell`)()(...given)"
        return page.evaluate(call, [source, cells, at, pointing.WORDS])[0]

    said = {(row, column): point(row, column) for row in (5, 6, 8) for column in (-1, 3, 7, 9)}
    page.close()
    for (row, _), words in said.items():
        assert words.count("cropped afterwards") == (row > 5), words
    assert re.search(r"attends to .*: \d+%; this row was cropped afterwards", said[6, 3])


@made
def test_keys_values_queries_and_outputs_are_read_by_pointing_and_by_keyboard(opened):
    opened.ready(SWITCHED)
    opened.slider(SWITCHED).fill("4")
    opened.ready(SWITCHED)
    root, page = opened.steppers[SWITCHED], opened.page
    reading, mark = root.locator(".kv-point"), root.locator(".kv-mark")
    told = opened.python(SWITCHED, "w._frames.cells(*w._key)[0]")
    picture = opened.image(SWITCHED).bounding_box()
    (left, top, cell), (gap, thick), span = told["at"], told["edge"], told["span"]
    near, far, row = -gap - thick / 2, span * cell + gap + thick / 2, told["rows"][-1]
    name = [f"'{token}' (position {n})" for n, token in enumerate(told["tokens"])]
    along = {n: (n + 0.5) * cell for n in (2, row)}
    written = "computed now and written to the cache"
    says = {
        (along[2], near): f"key of {name[2]}, read from the cache: 22 numbers",
        (
            along[row],
            near,
        ): f"key of {name[row]}, {written}: 22 numbers",
        (along[2], far): f"value of {name[2]}, read from the cache: 22 numbers",
        (near, along[row]): f"query of {name[row]}, computed now: 22 numbers",
        (far, along[row]): f"output of {name[row]}, computed now: 22 numbers",
    }
    for (x, y), words in says.items():
        page.mouse.move(picture["x"] + left + x, picture["y"] + top + y)
        expect(reading).to_have_text(words)
        box = mark.bounding_box()
        assert abs(box["x"] + box["width"] / 2 - picture["x"] - left - x) < 2
        assert abs(box["y"] + box["height"] / 2 - picture["y"] - top - y) < 2
    page.mouse.move(picture["x"] + left + near, picture["y"] + top + along[2])
    expect(reading).to_have_text(re.compile("^Point at"))  # no query there in this step
    page.mouse.move(5, 5)
    root.focus()
    for key in ("Down", *["Left"] * span):  # to the query, and no further
        page.keyboard.press(f"Shift+Arrow{key}")
    expect(reading).to_have_text(says[near, along[row]])
    for key in ("Right", "Right", "Right", *["Up"] * span):
        page.keyboard.press(f"Shift+Arrow{key}")
    expect(reading).to_have_text(says[along[2], near])


@made
def test_all_heads_are_shown_beside_the_picture_and_one_is_chosen(opened):
    opened.ready(SWITCHED)
    root = opened.steppers[SWITCHED]
    toggle, panel = root.get_by_role("button", name="All heads"), root.locator(".kv-heads")
    expect(toggle).to_have_attribute("aria-expanded", "false")
    toggle.click()
    expect(panel.get_by_role("button")).to_have_count(6)
    assert serious(opened) == []
    for width in (1280, 900):
        opened.page.set_viewport_size({"width": width, "height": 1000})
        opened.ready(SWITCHED)
        for head in (5, 1):
            panel.get_by_role("button", name=re.compile(f"^head {head} ")).click()
            expect(panel.locator("[aria-pressed=true]")).to_have_attribute("value", str(head))
            alt = re.compile(rf"layer \d, head {head}:")
            expect(opened.image(SWITCHED)).to_have_attribute("alt", alt)
            expect(opened.image(SWITCHED)).to_be_in_viewport(ratio=0.95)
            expect(panel).to_be_in_viewport(ratio=0.95)
    size = panel.get_by_role("button").first.evaluate("(e) => getComputedStyle(e).fontSize")
    assert float(size.removesuffix("px")) >= 12
    opened.page.set_viewport_size({"width": 1280, "height": 1000})
    opened.slider(SWITCHED).fill("6")
    said = opened.python(SWITCHED, "w.answer({'heads': [w.cached, w.layer, 6]})[0]['sentences']")
    for head, sentence in enumerate(said):
        shown = panel.locator(f"button[value='{head}']")
        each = r"\s".join(map(re.escape, sentence.split(" ")))  # some are no-break spaces
        expect(shown).to_have_text(re.compile(each))
    toggle.click()
    expect(panel).to_be_hidden()
    opened.in_python(SWITCHED, "w.head", 1)


@made
def test_it_can_be_used_at_twice_the_size(opened):
    """A zoom of 200% halves the width in pixels: nothing is cut off, and every control works."""
    opened.page.set_viewport_size({"width": 640, "height": 500})
    opened.page.wait_for_timeout(500)
    root = opened.steppers[SWITCHED]
    edge = root.evaluate("(e) => e.closest('.jp-OutputArea-output').getBoundingClientRect().right")
    for control in root.locator("button:visible, select, input").all():
        if control.is_visible():
            control.scroll_into_view_if_needed()
            box = control.bounding_box()
            assert box["x"] >= 0 and box["x"] + box["width"] <= edge + 1
    opened.press(SWITCHED, "Next")
    opened.page.set_viewport_size({"width": 1280, "height": 1000})


@made
def test_it_fits_a_narrow_window(opened):
    opened.page.set_viewport_size({"width": 700, "height": 800})
    opened.page.wait_for_timeout(500)
    for root in opened.steppers:
        wide = root.evaluate("(e) => [e.scrollWidth - e.clientWidth, e.parentElement.scrollWidth]")
        assert wide[0] <= 0
        inside = root.evaluate("(e) => e.closest('.jp-OutputArea-output').clientWidth")
        assert root.bounding_box()["width"] <= inside
    opened.page.set_viewport_size({"width": 1280, "height": 1000})


@made
def test_the_panel_follows_what_is_typed_and_chosen(opened):
    panel = opened.page.locator(".kvviz-panel")
    panel.scroll_into_view_if_needed()
    image = panel.locator("img")
    heavy = browser.ask(opened.client, "panel.bytes")
    for name, number in {"Tokens": "700", "Batch": "9"}.items():
        panel.get_by_label(name, exact=True).fill(number)
        panel.get_by_label(name, exact=True).press("Enter")
    panel.get_by_label("Precision", exact=True).select_option("bfloat16")
    expect(image).to_have_attribute("alt", re.compile("^9 conversations of 700 tokens in bfloat16"))
    assert image.get_attribute("alt") == browser.ask(opened.client, "panel.sentence")
    assert browser.ask(opened.client, "panel.bytes") == heavy * 100 * 9 / 2


@made
@pytest.mark.parametrize("name", ["JupyterLab Light", "JupyterLab Dark"])
def test_axe_finds_nothing_serious_in_the_panel(opened, name):
    panel = opened.page.locator(".kvviz-panel")
    panel.scroll_into_view_if_needed()
    theme(opened, name)
    assert serious(opened, ".kvviz-panel") == []
    image = panel.locator("img")
    alt = image.get_attribute("alt")
    image.evaluate("(image) => image.removeAttribute('alt')")
    assert [rule for rule, _ in serious(opened, ".kvviz-panel")] == ["image-alt"]
    image.evaluate("(image, alt) => { image.alt = alt; }", alt)
    theme(opened, "JupyterLab Light")


def test_an_exported_notebook_shows_picture_and_sentence_with_no_network(chrome, tmp_path):
    """Export with nbconvert: a committed notebook holds no widget, but it has its picture."""
    path = tmp_path / "exported.html"
    path.write_text(HTMLExporter().from_filename(str(ROOT / f"notebooks/{COURSE[0]}.ipynb"))[0])
    page = chrome.new_page()
    page.route("http*://**", lambda route: route.abort())
    page.goto(path.as_uri(), timeout=1000 * browser.PATIENCE)
    image = page.get_by_role("img", name=re.compile("^layer 13, head 8, without a cache, steps"))
    expect(image).to_have_count(1)
    expect(image).to_be_visible()
    assert image.evaluate("(image) => image.complete && image.naturalWidth") > 500
    page.close()


def test_a_folded_picture_gives_nothing_away_until_it_is_opened(lab, chrome):
    page = chrome.new_page()
    page.goto(lab.page("folded.ipynb"), timeout=1000 * browser.PATIENCE)
    folded = page.locator(".jp-Cell-outputWrapper .jp-Placeholder")
    expect(folded).to_have_text("<!-- a picture: click to open it -->")
    assert "step 4" not in page.locator(".jp-Notebook").inner_text()
    folded.locator(".jp-Placeholder-content").click()
    expect(page.get_by_role("img", name=FOLDED)).to_be_visible()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    page.close()


def test_progress_is_shown_on_the_page_and_leaves_nothing_behind(lab, chrome):
    page = chrome.new_page()
    page.add_init_script(NOTES_SEEN)
    client = browser.run_all(page, lab, "slow.ipynb")
    expect(page.locator(".kvviz-progress")).to_have_count(0)
    seen = set(page.evaluate("window.notesSeen"))
    assert len(seen) > 3
    for note in seen:
        assert re.fullmatch(r"recorded: \d+/15 steps, \d\d:\d\d, \d\d:\d\d left", note)
    page.keyboard.press("Control+s")
    saved, deadline = lab.runtime.parents[1] / "slow.ipynb", time.monotonic() + browser.PATIENCE
    while not is_saved(saved, "after"):
        assert time.monotonic() < deadline, "the notebook isn't saved"
        time.sleep(0.2)
    assert text_of_outputs(saved) == "before\nafter\n"
    assert "widgets" not in read(saved).metadata
    client.stop_channels()
    page.close()


def is_saved(path, word):
    """Whether the notebook's outputs hold a word; the server may be writing it just now."""
    text = path.read_text(encoding="utf-8")
    return text.rstrip().endswith("}") and word in text_of_outputs(path)


def text_of_outputs(path):
    return "".join(str(o.get("text", o)) for cell in read(path).cells for o in cell.outputs)


@every_notebook
def test_no_error_in_the_console_and_no_request_to_elsewhere(opened):
    assert opened.faults == []
    parts = [urlsplit(address) for address in opened.addresses]
    elsewhere = [p.geturl() for p in parts if p.scheme not in ("blob", "data")]
    elsewhere = [a for a in elsewhere if urlsplit(a).hostname not in ("127.0.0.1", "localhost")]
    assert elsewhere == [] and len(opened.addresses) > 20
