"""A grid says at a glance which rows are marked where, and its sentence says the same."""

import numpy as np
import pytest
import torch
from test_colours import check_contrast, distance
from texts_apart import check_texts

import kvviz as kv
from kvviz.drawing import grid, style
from kvviz.drawing.marks import find_cells

CHECKS = ("tokens", "logits", "keys and values", "chunks", "work")
FAULTS = {f"fault {i}": "xxxx." for i in range(8)}
FAULTS |= {"counter left behind": "..x..", "never read": "....x", "in front": "..xx."}
TABLE = {
    name: dict(zip(CHECKS, (mark == "x" for mark in marks), strict=True))
    for name, marks in FAULTS.items()
}
SAID = (
    "Seen: 11 rows by 5 columns; keys and values only: counter left behind; work only: never read; "
    "keys and values + chunks only: in front; all but work: the other 8 rows"
)


def draw(table=TABLE, **options):
    return kv.draw_grid(table, title="Seen", **options)


def canvas(picture):
    return picture.figure.axes[0]


def rows(picture):
    """{row's number: (its name's middle, in pixels from the top; whether it is bold)}."""
    found = {}
    for words in canvas(picture).texts:
        if (gid := words.get_gid() or "").startswith("row:"):
            bold = "Bold" in words.get_fontproperties().get_file()
            found[int(gid[4:])] = words.get_position()[1], bold
    return found


@pytest.mark.parametrize("sort", [True, False])
def test_every_cell_is_drawn_as_the_table_says(sort):
    cells = find_cells(canvas(draw(sort=sort)).collections)
    for i, marks in enumerate(TABLE.values()):
        for j, mark in enumerate(marks.values()):
            assert cells["grid", (i, j)] == ("marked" if mark else "unmarked")


def test_a_cell_stands_beside_its_rows_name_and_under_its_columns():
    picture = draw()
    at = rows(picture)
    heads = {t.get_gid(): t.get_position()[0] for t in canvas(picture).texts if t.get_gid()}
    for cells in canvas(picture).collections:
        if getattr(cells, "role", "") == "grid":
            for (i, j), box in zip(cells.places, cells.corners, strict=True):
                assert box[:, 1].min() < at[i][0] < box[:, 1].max()
                assert box[:, 0].min() < heads[f"column:{j}:0"] < box[:, 0].max()


def test_the_sentence_names_each_pattern_once_and_is_the_same_in_any_order():
    assert draw().sentence == draw(sort=False).sentence == SAID
    assert kv.draw_grid({"a": {"x": 1}}, title="Seen?").sentence == (
        "Seen? 1 row by 1 column; in all: a"
    )
    assert draw({"a": {"x": False}, "b": {"x": True}}).sentence.endswith("in none: a; in all: b")
    assert draw(sentence="mine").sentence == "mine"


def test_rows_with_the_fewest_marks_come_first_and_only_they_are_bold():
    at = rows(draw())
    assert sorted(at, key=at.get) == [8, 9, 10, *range(8)]
    assert {i for i, (_, bold) in at.items() if bold} == {8, 9, 10}
    unsorted = rows(draw(sort=False))
    assert sorted(unsorted, key=unsorted.get) == list(range(11))
    sparse = {str(i): {each: i == k for k, each in enumerate(CHECKS)} for i in range(5)}
    assert not any(bold for _, bold in rows(draw(sparse)).values())


def test_columns_are_those_asked_for_in_that_order():
    picture = draw(columns=("work", "tokens"))
    assert find_cells(canvas(picture).collections)["grid", (0, 1)] == "marked"
    assert "2 columns; in none: counter left behind, in front; work only: never read" in (
        picture.sentence
    )


@pytest.mark.parametrize("yes", [1, np.True_, torch.tensor(True), True])
def test_a_mark_in_any_form_is_a_mark(yes):
    assert draw({"a": {"x": yes, "y": 0}}).sentence.endswith("x only: a")


@pytest.mark.parametrize(
    ("table", "says"),
    [
        ([], r"table: expected .* but got \[\]"),
        ({"a": [True]}, r"table: expected .* but got \{'a': \[True\]\}"),
        ({}, "at least one row"),
        ({"a": {}}, "at least one column"),
        ({"a": {"x": True}, "b": {}}, "table, 'b': expected column 'x'"),
        ({"a": {"x": None}}, "table, 'a', 'x': expected True or False, but got None"),
        ({"a": {"x": "yes"}}, "expected True or False, but got 'yes'"),
    ],
)
def test_anything_but_a_table_of_marks_is_refused(table, says):
    with pytest.raises(ValueError, match=says):
        draw(table)


WIDE = {
    "a name that is long enough to be cut in the end, so it is": {"x": True},
    "語 ab\n": {"x": 0},
}


@pytest.mark.parametrize("table", [TABLE, WIDE, dict(list(TABLE.items())[:1])], ids=range(3))
@pytest.mark.parametrize("sort", [True, False])
def test_nothing_is_cut_off_and_no_two_texts_overlap(table, sort):
    figure = draw(table, sort=sort).figure
    check_texts(figure, closer=1.5, rotated=True)


def test_the_courses_grid_fits_a_notebook():
    faults = {name: next(iter(TABLE.values())) for name in kv.faults.GALLERY}
    picture = draw({**faults, "counter left behind": TABLE["counter left behind"]})
    assert picture.width <= 760 and picture.height <= 600


def test_marks_differ_in_shape_and_in_grey_and_words_are_readable():
    assert distance(grid.MARKED, style.TO_COME) > 40
    found = {a.get_gid() for a in canvas(draw()).collections}
    assert {"grid:marked:mark", "grid:unmarked:mark"} <= found
    check_contrast(draw().figure)
