"""The test command fails if a notebook is wrong, or if CI would skip something.

A separate pytest tests a small project with our settings and made-up notebooks.
"""

import copy
import os
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections import defaultdict
from itertools import islice

import pytest
from browser import SETUP, notebook
from nbformat import v4

from tests.warm_kernel import ForkingClient
from tools.notebooks import ROOT, canonical, execute, text_of

TWIN = "<img alt=\"{}\" src='data:image/png;base64,{}'>"
PICTURE = f"""
from IPython.display import HTML, display
display(HTML({TWIN.format("1 row attends to 10", "AAAA")!r}))
"""
REAL = {"text/plain": "<IPython.core.display.HTML object>"}


def stdout(text):
    return v4.new_output("stream", text=text)


def picture(words, pixels):
    return v4.new_output("display_data", REAL | {"text/html": TWIN.format(words, pixels)})


CELLS = {  # name -> cells of one notebook, one after the other
    "right": [("print(f'{23900:,}')", [stdout("23,900\n")]), ("import tabnanny\nx = 1", [])],
    "number-edited": [("print(f'{23900:,}')", [stdout("23,901\n")])],
    "number-edited-but-ignored": [("print(f'{23900:,}')", [stdout("23,901\n")])],
    "output-stripped": [("print(f'{23900:,}')", [])],
    "other-pixels": [(PICTURE, [picture("1 row attends to 10", "BBBB+/==")])],
    "other-words": [(PICTURE, [picture("1 row attends to 9", "AAAA")])],
    "warns": [("import warnings\nwarnings.warn('old', FutureWarning)", [])],
    "raises": [("1 / 0", [])],
    "other-kernel": [("import sys\nprint(sys.prefix)", [stdout(f"{sys.prefix}\n")])],
}
# A kernel begins with nothing of another notebook, and with none of the folders that pytest adds.
LEFT = "import sys\nprint('x' in globals(), {'tabnanny', 'pytest'} & sys.modules.keys())"
LEFT += "\nprint([folder for folder in sys.path if folder.endswith('tests')])"
FRESH = {"fresh": [(LEFT, [stdout("False set()\n[]\n")])]}
DIES = {"kernel-dies": [("import os\nos._exit(1)", []), ("print(1)", [stdout("1\n")])]}
SKIPS = {
    "test_skips.py": "import pytest\ndef test_it():\n    pytest.skip('no browser')",
    "test_skips_all.py": "import pytest\npytest.importorskip('no_such_module')",
}


WALK = "kv.stepper(cached, plain, step=3, layer=1, head=2)"


def write_stepper(path):
    """Write a notebook with a stepper as it's stored, and a copy with one word changed."""
    path.write_text(notebook([SETUP, WALK]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tools.notebooks.NotebookClient", ForkingClient)
        nb = execute(path)
    assert "widget" not in text_of(nb)
    edited = copy.deepcopy(nb.cells[1])
    words = edited.outputs[0].data["text/plain"]
    edited.outputs[0].data["text/plain"] = words.replace(" columns", " column")
    assert edited.outputs != nb.cells[1].outputs
    nb.cells.append(v4.new_code_cell(WALK, execution_count=3, outputs=edited.outputs))
    path.write_text(text_of(nb))


def write_cells(path, made):
    """Write a notebook of these cells; one whose name says so has its outputs ignored."""
    nb = v4.new_notebook()
    for name, cells in made.items():
        tags = {"tags": ["nbval-ignore-output"]} if name.endswith("ignored") else {}
        for source, outputs in cells:
            each = {"outputs": outputs, "metadata": dict(tags)}
            nb.cells.append(v4.new_code_cell(source, execution_count=len(nb.cells) + 1, **each))
    path.write_text(text_of(canonical(nb)))


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    """Outcome and seconds of each cell, by its name or its notebook's."""
    project = tmp_path_factory.mktemp("project")
    for name in ("pyproject.toml", "conftest.py", "tests/sanitize.cfg", "tests/warm_kernel.py"):
        (project / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, project / name)
    (project / "notebooks").mkdir()
    write_cells(project / "notebooks/cells.ipynb", CELLS)
    write_cells(project / "notebooks/fresh.ipynb", FRESH)
    write_cells(project / "notebooks/kernel-dies.ipynb", DIES)
    write_stepper(project / "notebooks/stepper.ipynb")
    for name, source in SKIPS.items():
        (project / "tests" / name).write_text(source)
    command = [sys.executable, "-m", "pytest", "--junitxml=results.xml"]
    command.append("--continue-on-collection-errors")
    environment = os.environ | {"KVVIZ_REQUIRE_BROWSER": "1"}
    subprocess.run(command, cwd=project, env=environment, capture_output=True, timeout=1800)
    found = defaultdict(list)
    for case in ET.parse(project / "results.xml").iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}".strip(".").split(".")[1]
        outcome = case[0].tag if len(case) else "passed"
        text = (case[0].text or "") if len(case) else ""
        found[name].append((outcome, float(case.get("time")), text))
    cells = iter(found.pop("cells"))
    found |= {name: list(islice(cells, len(each))) for name, each in CELLS.items()}
    assert not list(cells)
    return found


def outcomes(results, name):
    return [outcome for outcome, _, _ in results[name]]


@pytest.mark.parametrize("name", ["right", "number-edited-but-ignored", "other-pixels"])
def test_passes(results, name):
    assert outcomes(results, name) == ["passed"] * len(CELLS[name])


@pytest.mark.parametrize("name", ["number-edited", "output-stripped", "other-words", "warns"])
def test_a_changed_output_fails(results, name):
    assert outcomes(results, name) == ["failure"]
    assert "Cell outputs differ" in results[name][0][2]


def test_each_notebook_has_a_fresh_kernel(results):
    assert outcomes(results, "fresh") == ["passed"]


def test_a_failing_cell_fails(results):
    assert outcomes(results, "raises") == ["failure"]
    assert "ZeroDivisionError" in results["raises"][0][2]


def test_a_cell_that_kills_the_kernel_fails_long_before_its_time_is_up(results):
    assert outcomes(results, "kernel-dies") == ["failure", "failure"]
    settings = (ROOT / "pyproject.toml").read_text()
    allowed = int(re.search(r"--nbval-cell-timeout=(\d+)", settings)[1])
    assert sum(seconds for _, seconds, _ in results["kernel-dies"]) < allowed / 2
    assert "the kernel died" in results["kernel-dies"][0][2]


def test_a_stored_stepper_passes_and_fails_if_one_of_its_words_changes(results):
    assert outcomes(results, "stepper") == ["passed", "passed", "failure"]
    assert "Cell outputs differ" in results["stepper"][2][2]


def test_the_kernel_is_the_one_of_this_environment(results):
    assert outcomes(results, "other-kernel") == ["passed"]


@pytest.mark.parametrize("name", ["test_skips", "test_skips_all"])
def test_where_nothing_may_be_skipped_a_skip_is_a_failure(results, name):
    assert outcomes(results, name)[0] in ("failure", "error")
    assert "skipped, and here nothing may be" in results[name][0][2]
