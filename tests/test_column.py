import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex

from kvviz import draw_column
from kvviz.drawing import style
from kvviz.drawing.marks import find_cells
from kvviz.drawing.stack import describe_moved


def test_each_cell_says_whether_its_entry_moved():
    change = np.zeros((3, 5))
    change[1, 2], change[2, 4] = 0.5, 1e-4
    picture = draw_column(change, tokens=list("abcde"), title="One entry moved")
    drawn = find_cells(picture.figure.axes[1].collections)
    assert drawn["column", (1, 2)].startswith("moved")
    assert drawn["column", (2, 4)] == "unmoved"
    assert len(drawn) == 15
    assert picture.sentence == "One entry moved: 1 of 15 entries moved; positions moved in " + (
        "layer 0: none; layer 1: 2; layer 2: none"
    )


def test_a_larger_change_is_a_deeper_colour():
    change = np.array([[2e-3, 0.01, 0.05, 0.2, 0.9]])
    drawn = find_cells(draw_column(change, title="t").figure.axes[1].collections)
    assert [drawn["column", (0, place)] for place in range(5)] == [f"moved {k}" for k in range(5)]


def test_layer_0_is_at_the_bottom():
    change = np.zeros((3, 5))
    change[0, 2] = change[2, 4] = 0.5
    cells = draw_column(change, title="t").figure.axes[1].collections
    height = {
        place: y for a in cells for place, y in zip(a.places, a.corners[:, 0, 1], strict=True)
    }
    assert 2 < height[0, 2] < 3 and 0 < height[2, 4] < 1
    labels = {a.get_text(): a.get_position()[1] for a in draw_layers(change)}
    assert labels == {"0": 2.5, "1": 1.5, "2": 0.5}


def draw_layers(change):
    texts = draw_column(change, title="t").figure.axes[1].texts
    return [a for a in texts if a.get_text().isdigit()]


def test_the_sentence_groups_layers_that_moved_alike():
    change = np.zeros((7, 3))
    change[0, 0] = change[1:, :] = 1
    assert describe_moved(change).endswith("in layer 0: 0; layers 1 to 6: 0 to 2")
    assert describe_moved(np.zeros((4, 3))) == "no entry moved, in any of 4 layers"


def make_grown():
    change = np.zeros((3, 5))
    change[:, 4] = np.nan
    return change


def test_a_new_column_is_drawn_and_said_as_new():
    picture = draw_column(make_grown(), title="One more token")
    assert picture.sentence == (
        "One more token: no entry moved, in any of 3 layers; 1 new column, position 4"
    )
    ax = picture.figure.axes[1]
    drawn = find_cells(ax.collections)
    assert [drawn["column", (1, place)] for place in range(5)] == ["unmoved"] * 4 + ["new"]
    (cells,) = [a for a in ax.collections if a.state == "new"]
    assert to_hex(cells.get_facecolor()[0]) == style.fill("keys", "new")
    (mark,) = [line for line in ax.lines if line.get_gid() == "new:mark"]
    assert mark.get_xdata().tolist() == [4.5] * 3, "readable without colour, too"


def test_entries_of_new_columns_are_not_counted():
    change = make_grown()
    change[1, 2], change[:, 3] = 0.5, np.nan
    assert describe_moved(change) == (
        "1 of 9 entries moved; positions moved in layer 0: none; layer 1: 2; layer 2: none; "
        "2 new columns, positions 3 to 4"
    )


def read_legend(picture):
    return [text.get_text() for text in picture.figure.axes[0].texts]


def test_the_legend_explains_what_is_drawn():
    scale = ["not moved", "0.1%", "1%", "10%", "100%", "of its size"]
    old, grown = draw_column(np.ones((3, 5)), title="t"), draw_column(make_grown(), title="t")
    for picture in (old, grown):
        words = read_legend(picture)
        assert [word for word in words if word in scale] == scale
        renderer = FigureCanvasAgg(picture.figure).get_renderer()
        ends = [text.get_window_extent(renderer).x1 for text in picture.figure.axes[0].texts]
        assert max(ends) < picture.figure.bbox.width
    assert "new column" in read_legend(grown) and "new column" not in read_legend(old)


@pytest.mark.parametrize("shape", [(30, 12), (4, 6), (2, 100), (60, 3)])
def test_any_size_fits_its_page(shape):
    picture = draw_column(np.ones(shape), tokens=["word"] * shape[1], title="t")
    ax = picture.figure.axes[1]
    assert ax.get_position().x1 <= 1 and ax.get_position().y1 < 1
    assert picture.width <= 1200 and len(picture.png()) < 60_000


@pytest.mark.parametrize(
    ("change", "tokens", "says"),
    [
        (np.zeros(3), [], "n_layers, N"),
        (np.full((2, 2), np.nan), [], "expected numbers"),
        (np.array([[0, np.inf]]), [], "expected numbers"),
        (np.array([[0, 0], [0, np.nan]]), [], "at position 1 it's only in some, such as layer 1"),
        (np.zeros((2, 3)), ["a"], "expected 3, one for each position, but got 1"),
    ],
)
def test_bad_input_is_refused(change, tokens, says):
    with pytest.raises(ValueError, match=says):
        draw_column(change, tokens=tokens, title="t")
