"""Committed notebooks are clean, and everything that should be refused is refused."""

import json

import nbformat
import pytest
from nbformat import v4

from tools.hygiene import IGNORED, check, compared
from tools.notebooks import ROOT, canonical, notebooks, read, text_of

PICTURE = {
    "image/png": "iVBORw0KGgo=",
    "text/html": '<img alt="1 row attends to 10" src="data:image/png;base64,/home/ada/0xabcdef0">',
    "text/plain": "1 row attends to 10",
}


def code(source="23900", output="23900", count=1, **changes):
    outputs = [v4.new_output("stream", text=output)] if isinstance(output, str) else output
    return v4.new_code_cell(source, execution_count=count, outputs=outputs, **changes)


def prose(source):
    return v4.new_markdown_cell(source)


def shown(**data):
    return [v4.new_output("display_data", {k.replace("_", "/"): v for k, v in data.items()})]


def faults_of(tmp_path, cells, name="01-made-up.ipynb", **metadata):
    nb = canonical(v4.new_notebook(cells=cells))
    nb.metadata.update(metadata)
    return faults_of_text(tmp_path, text_of(nb), name)


def faults_of_text(tmp_path, text, name="01-made-up.ipynb"):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    return check(path)


def clean():
    return [
        prose("# One row is enough\n\nSee <https://example.org/a/b/c>, and/or run:"),
        code("positions = 23900\nprint(f'{positions:,}')", "23,900\n", 1),
        code("picture", [v4.new_output("display_data", PICTURE)], 2),
        code("cache.reset()", [], 3),
    ]


def test_a_clean_notebook_has_no_fault(tmp_path):
    assert faults_of(tmp_path, clean()) == []


BAD_CELLS = {
    "cell 0: ` at` can break after its space": [prose("so ` at` comes next"), code()],
    "no output at all": [code(output=[])],
    "counts are [None]": [code("x = 1", [], None)],
    "counts are [2, 1]": [code(count=2), code(count=1)],
    "counts are [1, 3]": [code(count=1), code(count=3)],
    "cell 1: shows something when run, but no output": [code(), code("len", [], 2)],
    "cell 1: shows something": [code(), code("for i in x:\n    print(i)", [], 2)],
    "cell 1: shows something when": [code(), code("with x:\n    display(i)", [], 2)],
    "cell 1: tagged 'nbval-ignore-output', but": [
        code(),
        code("run()", [], 2, metadata={"tags": [IGNORED]}),
    ],
    "cell 1: empty": [code(), code("", [], 2)],
    "cell 0: not plain Python": [code("%matplotlib inline")],
    "cell 0: not plain Python (no magics": [code("!pip install x")],
    "cell 0: an error: ValueError": [
        code(output=[v4.new_output("error", ename="ValueError", evalue="", traceback=[])])
    ],
    "cell 0: stderr: 'careful'": [
        code(output=[v4.new_output("stream", name="stderr", text="careful")])
    ],
    "cell 0: a warning in the output: 'FutureWarning'": [
        code(output="old.py:3: FutureWarning: `past_key_values` goes")
    ],
    "an absolute path in the output: '/home/ada/model'": [code(output="in /home/ada/model")],
    "an absolute path in the output: 'C:\\\\U'": [code(output="in C:\\Users\\ada")],
    "cell 0: an absolute path in the source": [code("open('/home/ada/notes.txt')")],
    "cell 1: an absolute path in the source": [code(), prose("in `/home/ada/notes.txt`")],
    "an object's address in the output": [code(output="<Run object at 0x7f3a5c0d1e80>")],
    "an object's address in the output: '0x7f3a5c0d1e80'": [
        code(output=shown(text_plain="<Run at 0x7f3a5c0d1e80>"))
    ],
    "a process number in the output: 'pid 4711'": [code(output="pid 4711")],
    "a date or a clock time in the output: '12:30:01'": [code(output="at 12:30:01")],
    "a date or a clock time in the output: '2031-05-06'": [code(output="on 2031-05-06")],
    "a measured time (tag it 'nbval-ignore-output') in the output": [code(output="12.5 ms")],
    "cell 0: a picture without alt text": [code(output=shown(image_png="iVBORw0KGgo="))],
    "cell 1: an image without alt text": [code(), prose("![](anatomy.png)")],
    "cell 1: an image without": [code(), prose('<img src="anatomy.png">')],
    "tag 'raises-exception' would hide": [code(metadata={"tags": ["raises-exception"]})],
    "tag 'nbval-skip' would hide": [code(metadata={"tags": ["nbval-skip"]})],
    "a test marker in the source": [code("# NBVAL_IGNORE_OUTPUT\n23900")],
    "31 cells, at most 30": [code(count=n) for n in range(1, 32)],
    "901 words, at most 900": [code(), *(prose("word " * 100) for _ in range(9)), prose("a")],
    "111 lines of code, at most 110": [code("x = 1\n" * 11, count=n) for n in range(1, 11)]
    + [code(count=11)],
    "111 words of prose, at most 110": [code(), prose("word " * 111)],
    "19 lines of code, at most 18": [code("x = 1\n" * 19)],
}


@pytest.mark.parametrize("fault", BAD_CELLS)
def test_a_bad_cell_is_refused(tmp_path, fault):
    faults = faults_of(tmp_path, BAD_CELLS[fault])
    assert any(fault in found for found in faults), faults
    assert len(faults) <= 2, faults


BAD_METADATA = {
    "widget state in the metadata": {"widgets": {"a partial one": {}}},
    "kernel 'ada-env', not 'python3'": {"kernelspec": {"name": "ada-env", "display_name": "Ada"}},
    "not in canonical form": {"language_info": {"name": "python", "version": "3.11.7"}},
}


@pytest.mark.parametrize("fault", BAD_METADATA)
def test_bad_metadata_is_refused(tmp_path, fault):
    faults = faults_of(tmp_path, clean(), **BAD_METADATA[fault])
    assert any(fault in found for found in faults), faults


def test_a_widgets_view_is_refused_and_taken_out_by_the_canonical_form(tmp_path):
    view = {"application/vnd.jupyter.widget-view+json": {"model_id": "1f2e"}, **PICTURE}
    nb = v4.new_notebook(cells=[code(output=[v4.new_output("display_data", view)])])
    faults = faults_of_text(tmp_path, text_of(nb))
    assert "cell 0: a widget's view, whose id is random" in faults
    assert canonical(nb).cells[0].outputs[0].data == PICTURE
    assert faults_of(tmp_path, nb.cells) == []


def test_timings_in_the_metadata_are_refused_and_taken_out_by_the_canonical_form(tmp_path):
    nb = canonical(v4.new_notebook(cells=clean()))
    nb.cells[1].metadata = {"execution": {"iopub.execute_input": "…"}, "tags": ["mine"]}
    assert faults_of_text(tmp_path, text_of(nb)) == ["not in canonical form: run `make refresh`"]
    assert canonical(nb).cells[1].metadata == {"tags": ["mine"]}


def test_a_cell_without_an_id_and_two_cells_with_one_id_are_refused(tmp_path):
    nb = json.loads(text_of(canonical(v4.new_notebook(cells=clean()))))
    nb["cells"][0]["id"] = nb["cells"][1]["id"]
    with pytest.warns(nbformat.warnings.DuplicateCellId):
        assert faults_of_text(tmp_path, json.dumps(nb))
    del nb["cells"][0]["id"]
    with pytest.warns(nbformat.warnings.MissingIDFieldWarning):
        assert faults_of_text(tmp_path, json.dumps(nb))


def test_a_file_over_a_mebibyte_is_refused(tmp_path):
    cells = [code(output=shown(text_plain="x" * (1 << 20)))]
    assert any("bytes, over 1,048,576" in fault for fault in faults_of(tmp_path, cells))


def test_a_file_that_is_not_a_notebook_is_refused(tmp_path):
    assert "not a valid notebook" in faults_of_text(tmp_path, "{}")[0]


@pytest.mark.parametrize("number", ["04", "06", "12", "13"])
def test_four_notebooks_have_a_larger_budget(tmp_path, number):
    cells = [code(count=n) for n in range(1, 41)]
    assert faults_of(tmp_path, cells, f"{number}-made-up.ipynb") == []
    cells.append(code(count=41))
    assert faults_of(tmp_path, cells, f"{number}-made-up.ipynb") == ["41 cells, at most 40"]


def test_the_thing_being_built_may_be_longer(tmp_path):
    tagged = {"tags": ["the-thing-being-built"]}
    assert faults_of(tmp_path, [code("x = 1\n" * 30, metadata=tagged)]) == []


def test_a_measured_time_is_allowed_where_its_text_is_not_compared(tmp_path):
    assert faults_of(tmp_path, [code(output="12.5 ms", metadata={"tags": [IGNORED]})]) == []


def test_the_answer_to_a_prediction_is_folded_and_nothing_else(tmp_path):
    question, folded = prose("**Predict.** How many?"), {"jupyter": {"outputs_hidden": True}}
    for cells, says in [
        ([question, code(metadata=folded)], []),
        ([question, code(), code(count=2, metadata=folded)], []),
        ([question, code()], ["cell 0: no output after this prediction is folded"]),
        (
            [question, prose(question.source), code(metadata=folded)],
            ["cell 0: no output after this prediction is folded"],
        ),
        ([code(metadata=folded), prose("no question")], ["cell 0: its output is folded, but no"]),
    ]:
        faults = faults_of(tmp_path, cells)
        assert len(faults) == len(says)
        assert all(fault.startswith(said) for fault, said in zip(faults, says, strict=True))


def test_there_is_a_notebook():
    assert notebooks()


@pytest.mark.parametrize("path", notebooks(), ids=lambda path: str(path.relative_to(ROOT)))
def test_a_committed_notebook_has_no_fault(path):
    assert check(path) == []


def test_at_least_85_percent_of_the_cells_with_output_are_compared():
    counts = [compared(read(path)) for path in notebooks()]
    shown, same = sum(n for n, _ in counts), sum(n for _, n in counts)
    assert shown > 0
    assert same >= 0.85 * shown, f"only {same} of {shown}"


def test_an_ignored_cell_counts_as_not_compared():
    cells = [code(), code(metadata={"tags": [IGNORED]}), code(output=[]), prose("words")]
    assert compared(v4.new_notebook(cells=cells)) == (2, 1)
