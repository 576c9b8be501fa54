"""The structure that every notebook of the course has."""

import re

import pytest

from tools.notebooks import ROOT, notebooks, read

LESSONS = [path for path in notebooks() if path.parent.name == "notebooks"]
SOLUTIONS = ROOT / "notebooks" / "solutions"
by_name = pytest.mark.parametrize("path", LESSONS, ids=lambda path: path.stem)


def words(nb):
    return "\n".join(cell.source for cell in nb.cells if cell.cell_type == "markdown")


def outputs(cell):
    return [output.get("data", {}) for output in cell.get("outputs", ())]


def text_of(cell):
    return "\n".join(data.get("text/plain", "") for data in outputs(cell))


def is_open(cell):
    """Whether it's an exercise that is still to be done: a stub, or code that is still broken."""
    return text_of(cell).startswith("· not done yet")


def has_picture(cell):
    return any("image/png" in data for data in outputs(cell))


def test_there_is_a_course():
    assert [path.stem[:2] for path in LESSONS] == [f"{n:02}" for n in range(15)]


@by_name
def test_it_asks_a_question_first_and_says_at_the_end_what_is_known_and_still_open(path):
    nb = read(path)
    first, last = nb.cells[0].source, nb.cells[-1].source
    assert first.startswith("# ") and "**Question.**" in first and "minutes" in first
    assert "**At the end**" in first
    assert "**Now you know**" in last and "**Still open**" in last
    assert len(re.findall(r"\]\(https://", last)) in (2, 3)


@by_name
def test_a_picture_comes_early_and_often(path):
    cells = read(path).cells
    pictures = [number for number, cell in enumerate(cells) if has_picture(cell)]
    assert pictures[0] <= 2
    gaps = [later - sooner for sooner, later in zip(pictures, pictures[1:], strict=False)]
    assert max(gaps) <= 4, pictures
    tasks = sum(map(is_open, cells))
    assert len(cells) - pictures[-1] <= 4 + 2 * tasks, pictures  # then the tasks and the end


@by_name
def test_predictions_fold_open_and_name_the_usual_mistake(path):
    text = words(read(path))
    answers = re.findall(r"<details>.*?</details>", text, re.DOTALL)
    assert sum(answer.lower().count("common answer") for answer in answers) >= 2
    assert text.index("**Predict") < text.index("<details>")


@by_name
def test_setup_is_at_most_three_imports_and_nothing_is_installed(path):
    code = [cell.source for cell in read(path).cells if cell.cell_type == "code"]
    assert code[0].count("import ") <= 3
    assert not [line for cell in code for line in cell.splitlines() if line.startswith(("%", "!"))]


@by_name
def test_tasks_are_open_and_their_solutions_are_kept_apart(path):
    tasks = [c for c in read(path).cells if re.search(r"^kv\.(exercises|check)", c.source, re.M)]
    open_tasks = [cell for cell in tasks if is_open(cell)]
    assert open_tasks
    for cell in tasks:
        assert is_open(cell) or not re.search(r"\.\.\.$", cell.source, re.M)
    feedback = [text_of(cell) for cell in read(SOLUTIONS / path.name).cells]
    assert sum(text.startswith("✓") for text in feedback) >= len(open_tasks)
    assert sum(text.startswith("✗") for text in feedback) >= 2 * len(open_tasks)


@by_name
def test_its_links_lead_somewhere(path):
    text = words(read(path)) + words(read(SOLUTIONS / path.name))
    for target in re.findall(r"\]\(((?:\.\./)?[\w-]+\.ipynb)\)", text):
        assert (ROOT / "notebooks" / target.removeprefix("../")).exists(), target
