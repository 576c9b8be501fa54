import numpy as np
import pytest

from kvviz import draw_column
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
        (np.zeros((2, 3)), ["a"], "expected 3, one for each position, but got 1"),
    ],
)
def test_bad_input_is_refused(change, tokens, says):
    with pytest.raises(ValueError, match=says):
        draw_column(change, tokens=tokens, title="t")
