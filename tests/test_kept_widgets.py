"""Save, reload, restart, shut down: what is left of a stepper and a panel in JupyterLab."""

import json
import re
import urllib.request

import browser
import pytest
from nbconvert import HTMLExporter
from playwright.sync_api import expect

from tools.notebooks import ROOT, WIDGET_VIEW, read

pytestmark = pytest.mark.skipif(
    browser.chromium() is None, reason=f"no browser found: none of {', '.join(browser.NAMES)}"
)
CELLS = [
    browser.SETUP,
    "kv.stepper(cached, plain, step=3, layer=1, head=2)",
    "kv.memory_panel(model, tokens=7)",
]
WORDS = ("layer 1, head 2, without a cache, steps 0", "1 conversation of 7 tokens")


@pytest.fixture(scope="module")
def lab(tmp_path_factory):
    folder = tmp_path_factory.mktemp("kept")
    (folder / "work.ipynb").write_text(browser.notebook(CELLS))
    first = ROOT / "notebooks/00-start-here.ipynb"
    (folder / "first.ipynb").write_text(first.read_text())
    with browser.jupyterlab(folder, f"--config={ROOT / 'tools/lab_config.py'}") as lab:
        lab.folder = folder
        yield lab


@pytest.fixture(scope="module")
def chrome():
    with browser.browser() as chrome:
        yield chrome


class Work:
    """The notebook, run in a page, and what the page logged."""

    def __init__(self, chrome, lab):
        self.lab, self.faults = lab, []
        self.page = chrome.new_page(viewport={"width": 1280, "height": 1000})
        self.page.on("console", lambda said: said.type == "error" and self.faults.append(said.text))
        self.page.on("pageerror", lambda error: self.faults.append(str(error)))
        browser.run_all(self.page, lab, "work.ipynb").stop_channels()
        self.stepper = self.page.locator(".kvviz-stepper")
        self.panel = self.page.locator(".kvviz-panel")
        self.image = self.stepper.locator(".kv-picture img")
        self.alarm = self.stepper.get_by_role("alert")
        expect(self.image).to_have_attribute("alt", re.compile("^step 3, layer 1, head 2:"))
        expect(self.panel).to_be_visible()

    def command(self, name):
        self.page.evaluate(f"void window.jupyterapp.commands.execute('{name}')")

    def save(self):
        self.page.keyboard.press("Control+s")
        expect(self.page.locator(".lm-TabBar-tab.jp-mod-dirty")).to_have_count(0)
        return read(self.lab.folder / "work.ipynb")

    def load(self):
        self.page.goto(self.lab.page("work.ipynb"))
        self.page.locator(".jp-Notebook .jp-Cell").first.wait_for()
        self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()

    def shut_down(self):
        for session in json.loads(self.lab._ask("api/sessions")):
            address = f"{self.lab.address}/api/sessions/{session['id']}"
            headers = {"Authorization": f"token {self.lab.token}"}
            request = urllib.request.Request(address, method="DELETE", headers=headers)
            urllib.request.urlopen(request, timeout=browser.PATIENCE).close()

    def shut_down_in_the_menu(self):
        self.command("kernelmenu:shutdown")
        expect(self.page.get_by_text("No Kernel").first).to_be_visible()

    def restart(self):
        self.command("notebook:restart-kernel")
        self.page.locator(".jp-Dialog button", has_text="Restart").click()
        self.page.wait_for_timeout(500)
        self.page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()

    def choose(self, name, value):
        self.stepper.get_by_role("combobox", name=name).select_option(value)


@pytest.fixture
def work(chrome, lab):
    work = Work(chrome, lab)
    yield work
    work.page.close()
    work.shut_down()


# -- one kernel, and what may happen to it -----------------------------------------------------


def stepping_stops_where_it_was_seen(work, end):
    """Without its kernel, what was seen steps, and the rest says what to do."""
    for step in (4, 5):
        work.stepper.get_by_role("button", name="Next").click()
        expect(work.image).to_have_attribute("alt", re.compile(f"^step {step}, "))
    work.page.wait_for_timeout(1500)  # the neighbours come, too
    end()
    for name, step in (("Previous", 4), ("Previous", 3), ("Next", 4), ("Next", 5)):
        work.stepper.get_by_role("button", name=name).click()
        expect(work.image).to_have_attribute("alt", re.compile(f"^step {step}, layer 1, head 2:"))
        expect(work.image).to_be_visible()
    work.choose("Layer", "2")
    expect(work.alarm).to_have_text(re.compile("no longer has this run.* Run the cell again"))
    expect(work.image).to_be_hidden()
    expect(work.stepper.get_by_text("waiting for the kernel")).to_be_hidden()
    work.stepper.get_by_role("button", name="All heads").click()
    expect(work.stepper.locator(".kv-heads")).to_have_text(re.compile("no longer has this run"))
    work.choose("Layer", "1")
    expect(work.alarm).to_be_hidden()
    expect(work.image).to_be_visible()
    work.panel.get_by_label("Tokens").fill("9")
    work.panel.get_by_label("Tokens").press("Enter")
    expect(work.panel.get_by_role("alert")).to_have_text(re.compile("Run the cell again"))
    assert work.faults == []


def test_saved_and_opened_without_its_kernel_the_picture_and_its_sentence_are_there(work):
    saved = work.save()
    stepping_stops_where_it_was_seen(work, work.shut_down)
    work.load()
    for words in WORDS:
        picture = work.page.get_by_role("img", name=re.compile(f"^{words}"))
        expect(picture).to_be_visible()
        assert picture.evaluate("(image) => image.complete && image.naturalWidth") > 300
    assert work.stepper.count() == work.panel.count() == 0
    assert "Error displaying widget" not in work.page.locator(".jp-Notebook").inner_text()
    assert work.faults == []
    outputs = [output for cell in saved.cells for output in cell.outputs]
    assert len(outputs) == 2 and not any(WIDGET_VIEW in output.data for output in outputs)
    assert "widgets" not in saved.metadata
    page, _ = HTMLExporter().from_notebook_node(saved)
    assert all(f'alt="{words}' in page for words in WORDS)
    assert len(json.dumps(saved)) < 120_000, "two pictures, each twice"


def test_loaded_again_while_its_kernel_runs_it_works_where_it_was(work):
    work.stepper.get_by_role("button", name="Next").click()
    expect(work.image).to_have_attribute("alt", re.compile("^step 4, "))
    work.page.wait_for_timeout(500)  # the state goes to Python 120 ms after a move
    work.save()
    work.load()
    expect(work.image).to_have_attribute("alt", re.compile("^step 4, layer 1, head 2:"))
    work.choose("Layer", "2")
    expect(work.image).to_have_attribute("alt", re.compile("^step 4, layer 2, head 2:"))
    work.panel.get_by_label("Tokens").fill("8")
    work.panel.get_by_label("Tokens").press("Enter")
    expect(work.panel.locator("img")).to_have_attribute("alt", re.compile("^1 .* of 8 tokens"))
    assert work.faults == []
    # Another page of the same kernel, which hasn't seen layer 2, and whose kernel is then shut down
    work.choose("Layer", "1")
    work.stepper.get_by_role("button", name="Previous").click()
    expect(work.image).to_have_attribute("alt", re.compile("^step 3, layer 1, head 2:"))
    work.page.wait_for_timeout(500)
    work.load()
    expect(work.image).to_have_attribute("alt", re.compile("^step 3, layer 1, head 2:"))
    stepping_stops_where_it_was_seen(work, work.shut_down_in_the_menu)


def test_after_a_restart_it_is_there_again_once_it_is_run(work):
    stepping_stops_where_it_was_seen(work, work.restart)
    work.command("notebook:run-all-cells")
    expect(work.image).to_have_attribute("alt", re.compile("^step 3, "))
    work.choose("Layer", "2")
    expect(work.image).to_have_attribute("alt", re.compile("^step 3, layer 2"))
    assert work.stepper.count() == work.panel.count() == 1
    assert work.faults == []


def test_a_notebook_that_is_only_opened_is_not_marked_as_changed(chrome, lab):
    page = chrome.new_page()
    page.goto(lab.page("first.ipynb"))
    page.locator(".jp-Notebook .jp-Cell").first.wait_for()
    page.locator(".jp-Notebook-ExecutionIndicator[data-status=idle]").wait_for()
    told = "window.jupyterapp.shell.currentWidget.context.model"
    page.wait_for_function(f"{told}.getMetadata('language_info').version")
    page.wait_for_timeout(2000)
    assert page.evaluate(f"{told}.dirty") is False
    assert page.locator(".lm-TabBar-tab.jp-mod-dirty").count() == 0
    page.close()
