"""Pages of the course and of one stepper, opened from a file with the network off."""

import base64
import html
import io
import json
import re
import time
from urllib.parse import urlsplit

import browser
import pytest
from axe_playwright_python.sync_playwright import Axe
from PIL import Image, ImageChops
from playwright.sync_api import expect
from small import cached_loop, llama, plain_loop, prompt

import kvviz as kv
from kvviz import files
from kvviz.widgets import page, site
from kvviz.widgets.album import Album
from tests.warm_kernel import ForkingClient
from tools import site as course
from tools.notebooks import ROOT, notebooks

in_a_browser = pytest.mark.skipif(
    browser.chromium() is None, reason=f"no browser found: none of {', '.join(browser.NAMES)}"
)
NEW = 4
LESSON, TITLE = "00-start-here", "My own run drew this"
HOSTILE = ["<img src=x onerror=alert(1)>", "</script><script>alert(2)</script>", "{{ 7 * 7 }}"]
HOSTILE += ["<!--", "&lt;b&gt;"]


class Words:
    """A tokenizer whose tokens are markup."""

    def decode(self, ids, **_):
        return "".join(HOSTILE[int(i) % len(HOSTILE)] for i in ids)

    def convert_ids_to_tokens(self, ids):
        return [HOSTILE[int(i) % len(HOSTILE)] for i in ids]


def recorded(loop, ids, tokenizer=None):
    model = llama()
    with kv.record(model, tokenizer) as run:
        loop(model, ids, NEW)
    return run


@pytest.fixture(scope="module")
def walk():
    runs = [recorded(loop, prompt(5)) for loop in (cached_loop, plain_loop)]
    return kv.stepper(*runs, step=1, layer=1, head=2)


@pytest.fixture(scope="module")
def alone(walk, tmp_path_factory):
    """The page of one stepper."""
    return walk.save(tmp_path_factory.mktemp("alone") / "mine.html")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The course's pages: one notebook with a stepper is run, and the others are as stored."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KVVIZ_PROGRESS", "0")
        patch.setattr(site, "has_stepper", lambda nb: f"# {TITLE}" in nb.cells[0].source)
        patch.setattr(site, "NotebookClient", ForkingClient)
        made, failed = course.build(folder, notebooks())
    assert not failed and len(made) == len(notebooks()) + 1
    return folder


@pytest.fixture(scope="module")
def chrome():
    with browser.browser() as chrome:
        yield chrome


class Opened:
    """A page opened from a file without a network, and what it logged and requested."""

    def __init__(self, chrome, path, *, by_hand=False):
        self.context = chrome.new_context(viewport={"width": 1280, "height": 1000})
        self.context.set_offline(True)
        self.page = self.context.new_page()
        self.page.set_default_timeout(1000 * browser.PATIENCE)
        if by_hand:
            self.page.clock.install()
        self.faults, self.addresses = [], []
        self.page.on("console", lambda said: said.type == "error" and self.faults.append(said.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        self.page.on("dialog", lambda dialog: (self.faults.append("alert"), dialog.dismiss()))
        self.page.on("request", lambda request: self.addresses.append(request.url))
        self.page.goto(path.as_uri())
        self.root = self.page.locator(".kvviz-stepper")
        self.image = self.root.locator(".kv-picture img")

    def press(self, name):
        self.root.get_by_role("button", name=name, exact=True).click()

    def pair(self):
        """The layer and the head that are chosen."""
        return ",".join(self.menu(name).input_value() for name in ("layer", "head"))

    def slider(self):
        return self.root.get_by_role("slider").input_value()

    def menu(self, name):
        return self.root.locator(f"select[data-name={name}]")

    def options(self, name):
        return [int(n) for n in self.menu(name).locator("option").all_inner_texts()]

    def shows(self, sentence):
        expect(self.image).to_have_attribute("alt", sentence)
        expect(self.root.locator(".kv-words [aria-live]")).to_have_text(sentence)

    def pixels(self):
        """The page's picture, decoded here."""
        read = """(image) => {
          const canvas = document.createElement("canvas");
          [canvas.width, canvas.height] = [image.naturalWidth, image.naturalHeight];
          canvas.getContext("2d").drawImage(image, 0, 0);
          return canvas.toDataURL("image/png").split(",")[1];
        }"""
        png = base64.b64decode(self.image.evaluate(read))
        return Image.open(io.BytesIO(png)).convert("RGB")

    def serious(self):
        found = Axe().run(self.page, context="main, nav").response["violations"]
        return [(each["id"], each["help"]) for each in found if each["impact"] in SERIOUS]

    def elsewhere(self):
        return [a for a in self.addresses if urlsplit(a).scheme not in ("file", "data", "blob")]


SERIOUS = ("serious", "critical")


@pytest.fixture
def opened(request, chrome):
    opened = Opened(chrome, request.getfixturevalue(request.param))
    yield opened
    opened.context.close()


@pytest.fixture
def lesson(built):
    return built / f"{LESSON}.html"


# --- one stepper ----------------------------------------------------------------------------


def said(walk, **state):
    """What the live stepper says and draws in this state."""
    key = {"cached": True, "layer": 1, "head": 2, "step": 1} | state
    message, (png,) = walk.answer({"frame": list(key.values())})
    return message["sentence"], Image.open(io.BytesIO(png)).convert("RGB")


@in_a_browser
@pytest.mark.parametrize("opened", ["alone"], indirect=True)
def test_it_steps_by_mouse_and_by_keyboard_and_shows_what_the_live_one_shows(opened, walk):
    opened.shows(said(walk)[0])
    for move, step in enumerate([*range(2, NEW), *range(NEW - 2, -1, -1)]):
        on = step == 2 + move
        if move % 2:
            opened.press("Next" if on else "Previous")
        else:
            opened.root.focus()
            opened.page.keyboard.press("ArrowRight" if on else "ArrowLeft")
        sentence, drawn = said(walk, step=step)
        opened.shows(sentence)
        assert ImageChops.difference(opened.pixels(), drawn).getbbox() is None
    opened.root.get_by_role("switch").click()
    opened.menu("head").select_option("0")
    sentence, drawn = said(walk, cached=False, head=0, step=int(opened.slider()))
    opened.shows(sentence)
    assert ImageChops.difference(opened.pixels(), drawn).getbbox() is None, "laid over another"
    assert opened.faults == [] and opened.elsewhere() == []


@in_a_browser
def test_play_takes_a_second_a_step_and_more_for_those_who_want_less_motion(chrome, alone):
    opened = Opened(chrome, alone, by_hand=True)
    expect(opened.image).to_have_attribute("alt", re.compile("^step 1,"))
    opened.page.clock.pause_at(time.time() + 3600)
    slider = opened.root.get_by_role("slider")
    opened.press("First")
    for motion, pace, step in (("no-preference", 1000, 0), ("reduce", 2500, 1)):
        opened.page.emulate_media(reduced_motion=motion)
        opened.press("Play")
        opened.page.clock.run_for(pace - 100)
        assert slider.input_value() == str(step), motion
        opened.page.clock.run_for(200)
        assert slider.input_value() == str(step + 1), motion
        opened.press("Pause")
        opened.page.clock.run_for(10 * pace)
        assert slider.input_value() == str(step + 1), motion
    opened.page.clock.resume()
    expect(opened.image).to_have_attribute("alt", re.compile("^step 2,"))
    opened.context.close()


@in_a_browser
@pytest.mark.parametrize("opened", ["alone"], indirect=True)
def test_the_menus_hold_what_the_page_holds(opened, walk):
    for layer in opened.options("layer"):
        opened.menu("layer").select_option(str(layer))
        for head in opened.options("head"):
            opened.menu("head").select_option(str(head))
            opened.shows(said(walk, layer=layer, head=head)[0])
    assert 1 in opened.options("layer")
    expect(opened.root.get_by_role("alert")).to_be_hidden()


@in_a_browser
@pytest.mark.parametrize("opened", ["alone"], indirect=True)
def test_all_heads_are_offered_only_where_the_page_holds_them(opened, walk):
    toggle, panel = opened.root.locator("[data-go=heads]"), opened.root.locator(".kv-heads")
    toggle.click()
    expect(panel).to_contain_text("What the newest token attends to in each head of layer 1.")
    opened.press("Previous")
    expect(panel).to_contain_text("What each of 5 rows attends to in each head of layer 1.")
    opened.press("Next")
    opened.menu("head").select_option("4")
    part = next(n for n in opened.options("layer") if n != 1)
    opened.menu("layer").select_option(str(part))
    assert len(opened.options("head")) < 6
    expect(toggle).to_be_hidden()
    expect(panel).to_be_hidden()
    opened.menu("layer").select_option("1")
    expect(toggle).to_be_visible()
    expect(panel.get_by_role("button")).to_have_count(6)
    expect(opened.menu("head")).to_have_value("4")  # the head it had before
    opened.shows(said(walk, layer=1, head=4)[0])


def test_a_page_says_which_part_of_the_recording_it_holds(alone):
    known = {0: [0, 1, 2], 1: [0, 1, 2], 2: [0, 1, 2]}
    held = {0: [2], 1: [0, 1, 2], 2: [0, 2]}
    said = "all heads of layer 1; head 2 of layer 0; heads 0 and 2 of layer 2."
    assert page.describe_limit(known, held).endswith(f"only part of the recording: {said}</p>")
    assert page.describe_limit(known, known) == ""
    assert "This page holds only part" in alone.read_text()


@in_a_browser
@pytest.mark.parametrize("opened", ["alone", "lesson"], indirect=True)
def test_axe_finds_nothing_serious_until_a_picture_loses_its_alt(opened):
    expect(opened.image).to_have_attribute("alt", re.compile("step"))
    assert opened.serious() == []
    opened.image.evaluate("(image) => image.removeAttribute('alt')")
    assert [rule for rule, _ in opened.serious()] == ["image-alt"]


@in_a_browser
@pytest.mark.parametrize("opened", ["alone", "lesson"], indirect=True)
def test_it_fits_a_narrow_window(opened):
    expect(opened.image).to_be_visible()
    for width in (700, 390):
        opened.page.set_viewport_size({"width": width, "height": 900})
        assert opened.page.evaluate("document.documentElement.scrollWidth") <= width


@pytest.fixture(scope="module")
def visits(chrome, built):
    """Page -> what it logged, what it requested, what Axe found, and its width on a phone."""
    found = {}
    for path in built.rglob("*.html"):
        opened = Opened(chrome, path)
        serious = opened.serious() if path.name == "index.html" else []
        seen = opened.faults.copy(), opened.elsewhere(), serious
        opened.page.set_viewport_size({"width": 390, "height": 900})
        name = path.relative_to(built).as_posix()
        found[name] = *seen, opened.page.evaluate("document.documentElement.scrollWidth")
        opened.context.close()
    assert len(found) == len(notebooks()) + 1
    return found


@in_a_browser
def test_every_page_fits_a_phone(visits):
    assert all(width <= 390 for *_, width in visits.values()), visits


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    runs = [recorded(loop, prompt(5), Words()) for loop in (cached_loop, plain_loop)]
    walk = kv.stepper(*runs, layer=0, beside=True)
    return walk.save(tmp_path_factory.mktemp("hostile") / "mine.html")


@in_a_browser
@pytest.mark.parametrize("opened", ["hostile"], indirect=True)
def test_markup_in_a_prompt_is_text(opened, hostile):
    asked = json.loads(re.search(r'json">(.+?)</script>', hostile.read_text())[1])["answers"]
    sentences = [message["sentence"] for message, _ in asked.values() if "frame" in message]
    assert any(each in html.unescape(" ".join(sentences)) for each in HOSTILE[:3])
    for step in range(1, NEW):
        opened.press("Next")
        opened.shows(asked[f'{{"frame":[true,{opened.pair()},{step}]}}'][0]["sentence"])
        expect(opened.root.locator("script, b, img[src='x']")).to_have_count(0)
    assert opened.root.get_by_role("switch").count() == 0, "both are beside each other"
    assert opened.faults == [] and opened.elsewhere() == []
    assert opened.page.locator("script").count() == 2, "the data and the stand-in"


def test_a_page_holds_what_was_asked_for_and_then_as_much_as_there_is_room(walk, monkeypatch):
    heads = {layer: list(range(9)) for layer in range(30)}
    rest = [(13, head) for head in range(8)]
    chosen = page.choose(heads, 13, 8, [(17, 5), (13, 8)])
    assert chosen == [(13, 8), (17, 5), *rest, (0, 8), (29, 8)]
    assert page.choose({3: [0]}, 3, 0) == [(3, 0)]
    monkeypatch.setattr(page, "MOST_BYTES", 1)
    content = page.collect(walk, [(0, 1)])
    assert content["state"]["_about"]["heads"] == [(1, [2])]
    assert len(content["answers"]) == 2 * NEW and not content["state"]["_about"]["overview"]


def test_only_a_cell_says_that_it_can_be_run(walk, alone):
    assert "Run this cell" in walk._repr_mimebundle_()[0]["text/html"]
    assert "Run this cell" not in alone.read_text()


def test_a_page_is_titled_by_its_prompt_and_holds_the_heads_it_is_given(walk, tmp_path):
    text = walk.save(tmp_path / "mine.html", heads={0: 1, 1: [0]}).read_text()
    prompt = "".join(walk.runs[True][0].square(0, 0).tokens)
    assert f"<title>{prompt}</title>" in text and f"<h1>{prompt}</h1>" in text
    assert '{\\"frame\\":[true,0,1,3]}' in text or '"frame":[true,0,1,3]' in text
    for wrong, says in [
        ({7: 0}, "layer 7: attention was kept for layers"),
        ({0: 99}, "head 99: layer 0 has heads 0 to"),
        ([0], "expected {layer: heads}, but got [0]"),
    ]:
        with pytest.raises(ValueError, match=re.escape(says)):
            walk.save(tmp_path / "other.html", heads=wrong)
    assert not (tmp_path / "other.html").exists()


def lay(album, numbers):
    """The picture that `page.js` makes of these, one on top of the other."""
    images = [Image.open(io.BytesIO(base64.b64decode(album.pictures[n]))) for n in numbers]
    whole = images[0].convert("RGBA")
    for image in images[1:]:
        whole.alpha_composite(image.convert("RGBA"))
    return whole.convert("RGB")


def test_equal_pictures_are_in_a_page_once_and_similar_ones_as_what_differs(walk):
    album, frames = Album(), {}
    for head in range(3):
        (png,) = walk.answer({"frame": [True, 1, head, 2]})[1]
        frames[head] = png, album.add(png, like="step 2")
    assert album.add(frames[1][0], like="step 2") == frames[1][1]
    assert album.add(frames[0][0], like="another") == frames[0][1] and len(album.pictures) == 3
    for png, numbers in frames.values():
        drawn = Image.open(io.BytesIO(png)).convert("RGB")
        assert ImageChops.difference(lay(album, numbers), drawn).getbbox() is None
    first, *others = map(len, album.pictures)
    assert all(other < first / 4 for other in others)


def test_pictures_of_different_sizes_are_each_kept_whole():
    album = Album()
    for width in (3, 5):
        file = io.BytesIO()
        Image.new("RGB", (width, 7), "red").save(file, "PNG")
        assert lay(album, album.add(file.getvalue(), like="one key")).size == (width, 7)


def test_what_cannot_be_drawn_is_said_in_the_page_too(walk, monkeypatch):
    monkeypatch.setattr(walk._frames, "frame", lambda *_: 1 / 0)
    answers = page.collect(walk)["answers"]
    frames = [answer for request, answer in answers.items() if "frame" in request]
    assert frames and all("ZeroDivisionError" in said["error"] and not n for said, n in frames)


def test_a_page_is_written_completely_or_not_at_all(walk, tmp_path, monkeypatch):
    with pytest.raises(ValueError, match=r"ends in \.html, but got 'mine.htm'"):
        walk.save(tmp_path / "mine.htm")
    says = "nowhere.*: expected a folder to write into, but .*nowhere isn't one"
    with pytest.raises(FileNotFoundError, match=says):
        walk.save(tmp_path / "nowhere" / "mine.html")
    there = tmp_path / "there.html"
    there.write_text("before")
    monkeypatch.setattr(page, "MOST_BYTES", 1)
    monkeypatch.setattr(files.os, "replace", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        walk.save(there)
    assert there.read_text() == "before" and list(tmp_path.iterdir()) == [there]


# --- the course -----------------------------------------------------------------------------


def test_every_notebook_has_its_page(built):
    paths = [path.relative_to(ROOT / "notebooks").with_suffix(".html") for path in notebooks()]
    made = {path.relative_to(built) for path in built.rglob("*.*")}
    assert {path.as_posix() for path in made} == {"index.html", *(p.as_posix() for p in paths)}


def test_a_notebook_that_fails_is_named_and_the_others_get_their_pages(tmp_path, monkeypatch):
    course_folder = tmp_path / "notebooks"
    (course_folder / "solutions").mkdir(parents=True)
    cell = {"cell_type": "code", "execution_count": None, "id": "b", "metadata": {}, "outputs": []}
    broken = {**cell, "source": "kv = None  # kv.stepper(\n1 / 0"}
    made = browser.notebook([]).replace('"cells": []', f'"cells": [{json.dumps(CELL)}]')
    (course_folder / "00-good.ipynb").write_text(made)
    for name in ("01-bad.ipynb", "solutions/00-good.ipynb"):
        both = f'"cells": [{json.dumps(CELL)}, {json.dumps(broken)}]'
        (course_folder / name).write_text(browser.notebook([]).replace('"cells": []', both))
    (course_folder / "02-odd.ipynb").write_text("no notebook")
    monkeypatch.setattr(course, "COURSE", course_folder)
    monkeypatch.setattr(course, "ROOT", tmp_path)
    monkeypatch.setattr(course, "notebooks", lambda: sorted(course_folder.rglob("*.ipynb")))
    monkeypatch.setattr(course, "index", lambda paths: " ".join(path.name for path in paths))
    out = tmp_path / "site"
    made, failed = course.build(out, course.notebooks())
    assert {path.name: why.split(":")[0] for path, why in failed.items()}.keys() == {
        "00-good.ipynb",
        "01-bad.ipynb",
        "02-odd.ipynb",
    }
    assert failed[course_folder / "01-bad.ipynb"] == "ZeroDivisionError: division by zero"
    assert [path.name for path in made] == ["00-good.html", "index.html"]
    assert "Solution" not in (out / "00-good.html").read_text()
    assert (out / "index.html").read_text() == "00-good.ipynb"
    assert course.main([str(out)]) == 3


def test_every_link_leads_somewhere_and_none_to_a_notebook(built):
    for path in built.rglob("*.html"):
        links = re.findall(r'href="([^"]+)"', path.read_text())
        for link in links:
            assert link.startswith("https://") or (path.parent / link).exists(), (path.name, link)
        assert links, path.name


def test_the_index_names_each_notebook_its_minutes_and_its_claim(built):
    index = (built / "index.html").read_text()
    assert '<a href="03-keep-the-horizontal-edges.html">03 Keep the horizontal edges</a>' in index
    nb = site.read(ROOT / "notebooks" / "03-keep-the-horizontal-edges.ipynb").cells[0].source
    claim, minutes = re.search(r"^\*(.+)\*$", nb, re.M)[1], re.search(r"\d+ minutes", nb)[0]
    assert f"edges</a>, {minutes}" in index and html.escape(claim) in index
    assert index.count("minutes") == index.count("<li>") == index.count(">solution<")
    assert 'src="data:image/png;base64,' in index


def test_a_page_has_a_title_a_language_and_a_size_that_can_be_sent(built, lesson):
    for path in built.rglob("*.html"):
        text = path.read_text()
        assert '<html lang="en">' in text and "<title></title>" not in text
        assert not re.search(r"<(script|link|img|iframe)[^>]+(src|href)=\"https?:", text)
    assert f"<title>{TITLE}</title>" in lesson.read_text()
    assert lesson.stat().st_size < 1_500_000


@in_a_browser
@pytest.mark.parametrize("opened", ["lesson"], indirect=True)
def test_the_lesson_steps_with_no_kernel_and_no_network(opened, lesson):
    data = re.search(r'<script type="application/json">(.+?)</script>', lesson.read_text())[1]
    answers = {k: message for k, (message, _) in json.loads(data)["answers"].items()}
    for step in range(1, 4):
        opened.press("Next")
        opened.shows(answers[f'{{"frame":[true,13,8,{step}]}}']["sentence"])
    opened.root.focus()
    opened.page.keyboard.press("ArrowLeft")
    opened.shows(answers['{"frame":[true,13,8,2]}']["sentence"])
    assert opened.faults == [] and opened.elsewhere() == []


@in_a_browser
def test_no_page_logs_an_error_or_requests_anything(visits):
    assert all(seen == [[], [], []] for *seen, _ in visits.values()), visits


# --- bad input ------------------------------------------------------------------------------


def test_a_file_that_is_not_a_notebook_is_refused(tmp_path):
    with pytest.raises(FileNotFoundError):
        kv.export_page(tmp_path / "none.ipynb", tmp_path)
    for text in ("no json", "{}", '{"nbformat": 4}'):
        (tmp_path / "odd.ipynb").write_text(text)
        with pytest.raises(ValueError, match="odd.ipynb: expected a notebook"):
            kv.export_page(tmp_path / "odd.ipynb", tmp_path)


def test_a_title_that_is_markup_is_text(tmp_path):
    path = tmp_path / "made.ipynb"
    path.write_text(browser.notebook([]).replace('"cells": []', f'"cells": [{json.dumps(CELL)}]'))
    made = site.export_page(path, tmp_path / "out", links={HOSTILE[0]: '"><b>'}).read_text()
    assert f"<title>{html.escape(CELL['source'][2:])}</title>" in made
    assert HOSTILE[0] not in made.split("<main>")[0] and '"><b>' not in made


def test_an_answer_stays_folded_on_the_page(tmp_path):
    shown = {"output_type": "stream", "name": "stdout", "text": "ten rows"}
    cell = {"cell_type": "code", "execution_count": 1, "source": "1", "outputs": [shown]}
    folded = {**cell, "id": "f", "metadata": {"jupyter": {"outputs_hidden": True}}}
    cells = [json.dumps(each) for each in (folded, {**cell, "id": "o", "metadata": {}})]
    path = tmp_path / "made.ipynb"
    path.write_text(browser.notebook([]).replace('"cells": []', f'"cells": [{", ".join(cells)}]'))
    text = site.export_page(path, tmp_path / "out").read_text()
    answer = re.search(r'<details class="answer">(.+?)</details>', text, re.S)[1]
    assert answer.count("ten rows") == 1 and text.count("ten rows") == 2
    assert text.count("<details") == 1


CELL = {"cell_type": "markdown", "id": "a", "metadata": {}, "source": f"# A {HOSTILE[1]} title"}
