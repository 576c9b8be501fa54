"""The handout: the course without outputs and without solutions, complete enough to run."""

import json
import re
import stat
import subprocess
import sys
import zipfile

import pytest

from tools import handout
from tools.notebooks import ROOT, notebooks, read

LESSONS = [path for path in notebooks() if path.parent.name == "notebooks"]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    folder = tmp_path_factory.mktemp("build") / "handout"
    handout.build(folder)
    return folder


def files_in(folder):
    return {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}


def test_every_notebook_is_there_and_no_solution(built):
    found = sorted(path.name for path in built.rglob("*.ipynb"))
    assert found == [path.name for path in LESSONS]
    assert not [name for name in files_in(built) if "solution" in name]


@pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)
def test_a_notebook_keeps_its_cells_and_loses_its_outputs(built, path):
    ours, theirs = read(path), read(built / "notebooks" / path.name)
    assert [cell.source for cell in theirs.cells] == [cell.source for cell in ours.cells]
    assert [cell.metadata for cell in theirs.cells] == [cell.metadata for cell in ours.cells]
    code = [cell for cell in theirs.cells if cell.cell_type == "code"]
    assert [cell for cell in code if cell.outputs or cell.execution_count] == []
    assert "image/png" not in (built / "notebooks" / path.name).read_text(encoding="utf-8")


def test_the_answers_to_predictions_still_fold_open(built):
    for path in (built / "notebooks").glob("*.ipynb"):
        assert "<details>" in path.read_text(encoding="utf-8"), path.name


def test_its_own_copy_of_the_package_is_what_is_imported(built):
    code = "import kvviz; print(kvviz.__file__, len(kvviz.load_text()))"
    done = subprocess.run(
        [sys.executable, "-B", "-c", code], cwd=built, env={}, capture_output=True, text=True
    )
    assert done.stdout.startswith(str(built / "kvviz")), done.stderr


def test_all_that_its_make_lab_reads_is_there(built):
    lab = re.search(r"^lab:.*?\n\n", (built / "Makefile").read_text(), re.M | re.S)[0]
    assert {"tools/lab_config.py"} == set(re.findall(r"tools/\w+\.py", lab)) <= files_in(built)
    assert {"pyproject.toml", "constraints.txt", "environment.yml", "LICENSE"} <= files_in(built)


def test_its_readme_says_how_to_set_up_and_links_nowhere_it_does_not_go(built):
    text = (built / "README.md").read_text(encoding="utf-8")
    for line in ("make lab ", "pip install -c constraints.txt -e .", "You need Python"):
        assert line in text
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert [link for link in links if not (built / link).exists()] == []


def test_no_notebook_links_to_a_file_that_is_left_out(built):
    for path in (built / "notebooks").glob("*.ipynb"):
        text = "\n".join(cell.source for cell in read(path).cells if cell.cell_type == "markdown")
        links = re.findall(r"\]\(((?!https?:|#)[^)#]+)", text)
        assert [link for link in links if not (path.parent / link).exists()] == [], path.name


def test_the_zip_holds_the_same_files_in_one_folder_and_they_can_be_read(built):
    with zipfile.ZipFile(built.with_suffix(".zip")) as packed:
        assert packed.testzip() is None
        assert set(packed.namelist()) == {f"kvviz/{name}" for name in files_in(built)}
        modes = {stat.S_IMODE(entry.external_attr >> 16) for entry in packed.infolist()}
        lesson = json.loads(packed.read(f"kvviz/notebooks/{LESSONS[0].name}"))
    assert modes == {0o644} and lesson["cells"]


def test_an_older_handout_is_replaced(built, tmp_path):
    folder = tmp_path / "handout"
    (folder / "notebooks").mkdir(parents=True)
    (folder / "notebooks" / "99-gone.ipynb").write_text("{}")
    handout.build(folder)
    assert files_in(folder) == files_in(built)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["handout", "handout.zip"]


def test_if_it_cannot_be_made_the_older_one_stays(tmp_path, monkeypatch):
    folder = tmp_path / "handout"
    folder.mkdir()
    (folder / "old.txt").write_text("as it was")
    monkeypatch.setattr(handout, "archive", lambda made: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        handout.build(folder)
    assert files_in(folder) == {"old.txt"}
    assert [p.name for p in tmp_path.iterdir()] == ["handout"]


def test_a_readme_without_its_set_up_is_refused():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    with pytest.raises(ValueError, match="README.md: expected its set-up, but found 4 of 5 parts"):
        handout.readme(text.replace("## If the download", "## When the download"))
