"""Imports go one way: showing and checking import recording and counting, never the reverse.

Checking shows what it found, so it imports drawing; drawing knows nothing of checking.
"""

import subprocess
import sys

import pytest

from tools import rooms

# Each folder -> the folders, or single modules of one, that it may import. All may import the
# top-level modules.
ALLOWED = {
    "exercises": ["checking", "drawing", "recording"],
    "checking": ["drawing", "recording"],
    "widgets": ["drawing", "recording.square", "recording.run"],
    "drawing": ["recording.square"],
    "recording": [],
    rooms.TOP: [],
}
# Everything may import these, and of kvviz they import only one another.
LEAVES = ["arguments", "count", "files", "layer_caches", "page_counts", "page_note", "progress"]
LEAVES += ["tokens", "words"]


@pytest.fixture(scope="module")
def imports():
    return rooms.imports()


def upward(imports):
    """Imports that the rule doesn't allow."""
    found = []
    for module, others in imports.items():
        own = rooms.folder(module)
        for other in others:
            named, there = other.removeprefix("kvviz."), rooms.folder(other)
            if there not in (own, rooms.TOP) and not {named, there} & {*ALLOWED[own]}:
                found.append(f"{module} imports {other}")
    return sorted(found)


def test_every_folder_is_in_the_rule():
    folders = {path.parent.name for path in rooms.PACKAGE.rglob("__init__.py")}
    assert ALLOWED.keys() == folders, "a new folder needs a line above, and one in CONTRIBUTING.md"


def test_no_import_goes_up(imports):
    assert upward(imports) == [], rooms.picture()


@pytest.mark.parametrize("name", LEAVES)
def test_what_everything_imports_imports_nothing_from_the_folders(imports, name):
    assert {*imports[f"kvviz.{name}"]} <= {f"kvviz.{leaf}" for leaf in LEAVES}


def test_no_module_imports_itself_indirectly(imports):
    assert rooms.circle(imports) == []


@pytest.mark.parametrize(
    ("module", "line"),
    [
        ("count", "from kvviz.drawing.square import draw_square"),
        ("recording/run", "def show(self):\n    from kvviz.drawing import picture"),
        ("drawing/marks", "import kvviz.widgets.page"),
        ("checking/loop", "from kvviz.exercises import feedback"),
        ("drawing/marks", "from kvviz.recording import recorder"),
        ("drawing/flaws", "from kvviz.checking.seen import Seen"),
    ],
)
def test_an_import_that_goes_up_is_seen_even_inside_a_function(tmp_path, module, line):
    for path in rooms.PACKAGE.rglob("*.py"):
        copy = tmp_path / "kvviz" / path.relative_to(rooms.PACKAGE)
        copy.parent.mkdir(parents=True, exist_ok=True)
        copy.write_text("")
    (tmp_path / f"kvviz/{module}.py").write_text(line)
    (found,) = upward(rooms.imports(tmp_path / "kvviz"))
    assert found.startswith(f"kvviz.{module.replace('/', '.')} imports kvviz.")


def test_a_circle_is_seen_and_the_picture_names_each_folder(imports):
    assert rooms.circle({"a": {"b"}, "b": {"c"}, "c": {"b"}}) == ["b", "c", "b"]
    lines = rooms.picture().splitlines()
    assert [line.split()[0] for line in lines if line] and len(lines) == len(ALLOWED)
    assert lines[-1] == rooms.TOP


def test_no_drawing_library_is_loaded_before_a_picture_is_looked_at():
    """Neither by recording nor by a check."""
    code = """
import kvviz.recording.recorder
import sys
print("matplotlib" in sys.modules)
import kvviz as kv
verdict = kv.check_cache()
print("matplotlib" in sys.modules)
print(verdict.picture is not None, "matplotlib" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True", "True"]
