"""A heat map's cells are its numbers, its marks stand where they should, and nothing is cut off."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from test_colours import check_contrast, distance
from texts_apart import check_texts

import kvviz as kv
from kvviz.drawing import style

NAN = float("nan")
RANDOM = np.random.default_rng(3)
KEYS = RANDOM.normal(size=(23, 41))
KEYS[:, 7] *= 3
KEYS[:, 7] -= 11
KEYS[:, 29] += 13
SHARES = RANDOM.random((13, 7)) * 0.4
SHARES[5, 3], SHARES[11, 6] = 0.97, 0.8


def draw(values, **options):
    return kv.draw_heatmap(values, title="T", **options)


def canvas(picture):
    return picture.figure.axes[0]


def cells(picture, role):
    """{(row, column): (state, colour, (left, top, right, bottom))} of what was drawn."""
    found = {}
    for each in canvas(picture).collections:
        if getattr(each, "role", "") == role:
            color = to_hex(each.get_facecolor()[0])
            for place, box in zip(each.places, each.corners, strict=True):
                found[place] = each.state, color, (*box.min(0), *box.max(0))
    return found


def find(picture, gid):
    return [a for a in canvas(picture).collections if a.get_gid() == gid]


def texts(picture):
    return {t.get_gid(): t for t in canvas(picture).texts if t.get_text()}


# --- cells ----------------------------------------------------------------------------------


@pytest.mark.parametrize("form", [np.asarray, torch.tensor, lambda x: x.tolist()])
def test_a_share_is_as_dark_as_it_is_large(form):
    drawn = cells(draw(form(SHARES), percent=True), "ink")
    assert drawn.keys() == {*np.ndindex(13, 7)}
    for place, (shade, color, _) in drawn.items():
        assert abs(int(shade) / 20 - SHARES[place]) <= 0.026
        assert color == to_hex(style.ink(int(shade) / 20))


def test_numbers_with_signs_have_the_colours_of_draw_numbers_and_a_slit_below_zero():
    picture = draw(KEYS)
    drawn = cells(picture, "numbers")
    levels = np.array([[int(drawn[k, j][0]) for j in range(41)] for k in range(23)])
    assert (np.sign(levels)[levels != 0] == np.sign(KEYS)[levels != 0]).all()
    order = np.argsort(KEYS, axis=None)
    assert (np.diff(levels.ravel()[order]) >= 0).all()
    assert (abs(levels[:, [7, 29]]) >= 2).mean() > 0.9
    assert abs(np.delete(levels, [7, 29], 1)).max() <= 1, "so these columns stand out"
    assert all(color == style.tint_number(int(level)) for level, color, _ in drawn.values())
    slits = sum(len(a.get_segments()) for a in find(picture, "below zero"))
    assert slits == (levels < 0).sum() + 5  # and five on the scale


def test_rows_go_down_and_columns_go_right():
    drawn = cells(draw(SHARES), "ink")
    for (k, j), (*_, (left, top, right, bottom)) in drawn.items():
        if k:
            assert drawn[k - 1, j][2][3] <= top + 1e-6
        if j:
            assert drawn[k, j - 1][2][2] <= left + 1e-6
        assert right - left > 10 and bottom - top > 10


def test_nothing_is_not_a_zero_and_has_a_mark_and_a_name():
    picture = draw([[0.0, NAN, 2], [NAN, NAN, 1]], nothing="masked")
    gone = cells(picture, "nothing")
    assert gone.keys() - {(0, 0)} == {(0, 1), (1, 0), (1, 1)}  # (0, 0) is the legend's
    assert cells(picture, "ink").keys() == {(0, 0), (0, 2), (1, 2)}
    assert sum(len(a.get_segments()) for a in find(picture, "nothing:mark")) == 3 + 1
    assert texts(picture)["legend:nothing"].get_text() == "masked"
    assert distance(style.ink(0), style.PAPER) > 5
    assert picture.sentence.endswith("nothing in 3 cells")
    assert "legend:nothing" not in texts(draw([[0, 1]]))
    assert cells(draw([[-3, NAN, 0]]), "numbers").keys() == {(0, 0), (0, 2)}


def test_a_few_numbers_are_written_and_many_are_not():
    assert texts(draw([[0.25, 1]], percent=True))["number:0,0"].get_text() == "25%"
    assert texts(draw([[0.034, 1234]]))["number:0,0"].get_text() == "0.034"
    assert not any(gid.startswith("number") for gid in texts(draw(SHARES)) if gid)


# --- scale ----------------------------------------------------------------------------------


def scale(picture):
    return [t.get_text() for t in canvas(picture).texts[1:] if t.get_text() and not t.get_gid()]


def test_the_scale_ends_at_the_largest_number_or_says_that_there_are_larger_ones():
    assert scale(draw(SHARES, percent=True)) == ["0%", "50%", "100%"]
    assert scale(draw([[0.7, 3.4]])) == ["0", "2", "4"]
    assert scale(draw([[0.7, 3.4]], limit=2)) == ["0", "1", "2 or more"]
    assert scale(draw([[-0.7, 3.4]]))[:3] == ["−4", "0", "4"]
    large = np.full((20, 30), -1.0)
    large[3, 4] = 500
    assert scale(draw(large))[:3] == ["−1 or less", "0", "1 or more"]


def test_a_table_of_one_number_or_of_equal_ones_is_drawn():
    assert draw([[3.5]]).sentence == "T: 1 row by 1 column; it is 3.5"
    assert draw([[0, 0, 0]]).sentence == "T: 1 row by 3 columns; all 3 are 0"
    assert draw([[-2.0], [-2]]).sentence == "T: 2 rows by 1 column; both are −2"
    assert cells(draw([[-2.0], [-2]]), "numbers").keys() == {(0, 0), (1, 0)}


# --- marks ----------------------------------------------------------------------------------


def test_marked_columns_and_rows_have_a_triangle_at_their_middle_and_a_name():
    picture = draw(KEYS, highlight=[29, 7], highlight_rows=[3], marked="large")
    drawn = cells(picture, "numbers")
    (columns,), (rows,) = find(picture, "marked:column"), find(picture, "marked:row")
    tips = [path.vertices[0] for path in columns.get_paths()]
    for j, tip in zip([7, 29], tips, strict=True):
        left, _, right, bottom = drawn[22, j][2]
        assert left < tip[0] < right and bottom < tip[1] < bottom + 5
        name = texts(picture)[f"marked:column:{j}"]
        assert name.get_text() == str(j) and abs(name.get_position()[0] - tip[0]) < 1
    (tip,) = [path.vertices[0] for path in rows.get_paths()]
    assert drawn[3, 40][2][1] < tip[1] < drawn[3, 40][2][3]
    assert texts(picture)["legend:triangle"].get_text() == "large"
    assert picture.sentence.endswith("large: columns 7 and 29; row 3")
    assert not find(draw(KEYS), "marked:column") and "legend:triangle" not in texts(draw(KEYS))


def test_a_marked_cell_has_a_frame_around_it():
    picture = draw(SHARES, highlight=[(5, 3)], xlabel="head", ylabel="layer", marked="main")
    (left, top, right, bottom) = cells(picture, "ink")[5, 3][2]
    frame = find(picture, "frame")[0].get_segments()[0]
    assert frame[:, 0].min() < left < right < frame[:, 0].max() < right + 4
    assert frame[:, 1].min() < top < bottom < frame[:, 1].max() < bottom + 4
    assert picture.sentence.endswith("; main: layer 5, head 3")


def test_names_of_marked_rows_side_by_side_stay_apart_and_beside_the_table():
    picture = draw(KEYS[:5], highlight_rows=[0, 1, 3, 4])
    boxes = [box for *_, box in cells(picture, "numbers").values()]
    top, bottom = min(box[1] for box in boxes), max(box[3] for box in boxes)
    tall = draw(RANDOM.random((300, 2)), highlight_rows=[296, 297, 298, 299])
    low = max(box[3] for *_, box in cells(tall, "ink").values())
    for each, ends in ((picture, (top, bottom)), (tall, (0, low))):
        at = [t.get_position()[1] for g, t in texts(each).items() if g and "marked:row" in g]
        assert len(at) == 4 and ends[0] < min(at) and max(at) < ends[1]
        assert min(np.diff(at)) >= 13 - 1e-6


def test_numbers_of_any_kind_mark_a_column():
    for one in (2, np.int64(2), torch.tensor(2)):
        assert draw(SHARES, highlight=[one]).sentence.endswith("marked: column 2")
    assert draw(SHARES, highlight=torch.tensor([2, 4])).sentence.endswith("columns 2 and 4")
    assert draw(SHARES, highlight=[(torch.tensor(1), np.int64(2))]).sentence.endswith("column 2")


# --- the sentence ---------------------------------------------------------------------------


def test_the_sentence_says_where_the_largest_is_and_what_stands_out():
    said = draw(SHARES, percent=True, xlabel="head", ylabel="layer").sentence
    assert said == (
        "T: 13 layers by 7 heads; the largest is 97%, at layer 5, head 3; 2 of 91 are over 50%"
    )
    said = draw(KEYS, xlabel="channel", ylabel="token").sentence
    k, j = np.unravel_index(abs(KEYS).argmax(), KEYS.shape)
    assert f"the largest in size is {f'{KEYS[k, j]:.2g}'.replace('-', '−')}, at token {k}, " in said
    assert "channels 7 and 29 stand out, at least 4 times the size of the middle channel" in said
    assert "tokens" not in said.split("; ", 1)[1]
    assert "row 2 stands out" in draw([[1, 1], [1, 2], [99, 80], [1, 1]]).sentence
    assert draw(SHARES, sentence="mine").sentence == "mine"
    assert draw([[1, 2]], rows=["a"], columns=["x", "y"]).sentence.endswith("row 'a', column 'y'")
    assert kv.draw_heatmap([[1]], title="Where?").sentence.startswith("Where? 1 row")


def test_names_that_several_rows_have_come_with_their_number():
    said = draw([[1], [3], [2]], rows=[" at", " at", "x"], ylabel="token").sentence
    assert "at token 1 (' at'), column 0" in said


# --- large tables ---------------------------------------------------------------------------


def test_three_hundred_rows_are_drawn_each_and_their_numbers_thinned():
    values = RANDOM.random((300, 12))
    picture = draw(values)
    drawn = cells(picture, "ink")
    assert drawn.keys() == {*np.ndindex(300, 12)}
    heights = {round(box[3] - box[1], 3) for *_, box in drawn.values()}
    assert heights == {1.333}  # two stored pixels
    named = [int(gid[4:]) for gid in texts(picture) if gid and gid.startswith("row:")]
    assert named == list(range(0, 300, 10))


def test_of_a_table_too_large_to_draw_the_largest_of_each_block_is_and_it_says_so():
    values = RANDOM.random((1000, 3)) * 0.4
    values[501] = 1, 0.5, NAN
    values[:4, 2] = NAN
    picture = draw(values, ylabel="token", sentence="mine", highlight_rows=[501], percent=True)
    drawn = cells(picture, "ink")
    assert picture.sentence == "mine; each cell is the largest of 3 tokens"
    assert texts(picture)["note"].get_text() == "each cell is the largest of 3 tokens"
    assert drawn[167, 0][0] == "20" and drawn[167, 1][0] == "10"
    assert cells(picture, "nothing").keys() == {(0, 2), (0, 0)}  # (0, 0) is the legend's
    for k in (0, 100, 333):
        assert int(drawn[k, 1][0]) == round(values[3 * k : 3 * k + 3, 1].max() * 20)
    (triangle,) = find(picture, "marked:row")
    assert drawn[167, 0][2][1] < triangle.get_paths()[0].vertices[0, 1] < drawn[167, 0][2][3]


# --- bad input ------------------------------------------------------------------------------


class Model:
    def __repr__(self):
        return "a page\n" * 100


@pytest.mark.parametrize(
    ("values", "options", "says"),
    [
        ([1, 2], {}, r"values: expected a table \(rows, columns\), but got shape \(2,\)"),
        (torch.zeros(1, 2, 3), {}, r"but got shape \(1, 2, 3\)"),
        ([[]], {}, "expected a table"),
        ([[1, 2], [3]], {}, "values: expected rows of one length"),
        ([["a"]], {}, "values: expected numbers, but got 'a'"),
        (Model(), {}, "values: expected numbers, but got Model"),
        ([[1, Model()]], {}, "values: expected numbers, but got Model"),
        ([[NAN]], {}, "values: expected finite numbers, and NaN where there is nothing"),
        ([[1, float("inf")]], {}, "values: expected finite numbers, and NaN where"),
        ([[0.5, 96]], {"percent": True}, "percent=True: expected shares 0 to 1, .* 0.5 to 96"),
        ([[-0.5, 0]], {"percent": True}, "percent=True: expected shares 0 to 1"),
        ([[1, 2]], {"columns": ["a"]}, r"columns: expected 2 names, but got \['a'\]"),
        ([[1, 2]], {"rows": "a"}, "rows: expected 1 name, but got 'a'"),
        ([[1, 2]], {"rows": Model()}, "rows: expected 1 name, but got Model"),
        ([[1, 2]], {"limit": 0}, "limit: expected a number above 0, but got 0"),
        ([[1, 2]], {"limit": Model()}, "limit: expected a number above 0, but got Model"),
        ([[1, 2]], {"highlight": 1}, "highlight: expected a list of numbers, but got 1"),
        ([[1, 2]], {"highlight": [2]}, "highlight: 2 is outside 1 x 2"),
        ([[1, 2]], {"highlight": [-1]}, "highlight: -1 is outside 1 x 2"),
        ([[1, 2]], {"highlight": [(0, 2)]}, r"highlight: \(0, 2\) is outside 1 x 2"),
        ([[1, 2]], {"highlight": ["a"]}, r"a column's number, or a cell's \(row, column\), but"),
        ([[1, 2]], {"highlight": [Model()]}, "highlight: expected a column's .* but got Model"),
        ([[1, 2]], {"highlight_rows": [1]}, "highlight_rows: 1 is outside 1 x 2"),
        ([[1, 2]], {"highlight_rows": [(0, 1)]}, "highlight_rows: expected a row's number, but"),
    ],
)
def test_what_cannot_be_drawn_is_refused_in_one_line(values, options, says):
    with pytest.raises(ValueError, match=says) as caught:
        draw(values, **options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 160


# --- what it looks like ---------------------------------------------------------------------

LONG = "a name that is so long that it has to be cut in the end"
LOOKS = {
    "shares": lambda: draw(SHARES, percent=True, xlabel="head", ylabel="layer", highlight=[(5, 3)]),
    "keys": lambda: draw(
        RANDOM.normal(size=(60, 64)),
        rows=[f"word {i}" for i in range(60)],
        ylabel="token",
        xlabel="channel",
        highlight=[0, 39, 40, 63],
        highlight_rows=[0, 1, 2, 58, 59],
    ),
    "one": lambda: draw([[1]]),
    "one below zero": lambda: draw([[-1]], highlight=[0], highlight_rows=[0], marked=LONG),
    "one row": lambda: draw(RANDOM.random((1, 90)), highlight=[*range(40)]),
    "one column": lambda: draw(RANDOM.random((90, 1)), highlight_rows=[*range(40)]),
    "long names": lambda: draw(
        [[1, 2, NAN]], rows=[LONG], columns=[LONG, "語\n", LONG], highlight=[0, 2]
    ),
    "names": lambda: draw(
        RANDOM.random((5, 23)), columns=[f"name {i}" for i in range(23)], xlabel="step"
    ),
    "large": lambda: draw(
        RANDOM.normal(size=(900, 400)), highlight=[399], highlight_rows=[0], ylabel="token"
    ),
    "$math$": lambda: draw([[1, 2]], rows=["$x$"], xlabel="$y^$", ylabel="_"),
}


@pytest.mark.parametrize("name", LOOKS)
def test_every_text_is_inside_readable_and_apart(name):
    picture = LOOKS[name]()
    assert picture.width <= 800 and picture.height <= 680
    if len(check_texts(picture.figure)) < 60:
        check_contrast(picture.figure)
