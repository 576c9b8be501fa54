"""A layout is only numbers, so it can be checked before anything is drawn."""

import numpy as np
import pytest
from squares import decode, keys_in_front, padded, plain, prefill, square, static, window

from kvviz.drawing import painting, style
from kvviz.drawing.layout import VALUE_LABELS, WIDEST, Room, find_room, find_start, plan

MADE = [plain(), decode(), prefill(), window(), static(), padded(), keys_in_front()]


@pytest.mark.parametrize("n", [1, 7, 23, 67, 160, 163, 307])
@pytest.mark.parametrize("many", [1, 2])
def test_squares_fit_their_panels_and_panels_fit_the_picture(n, many):
    made = plan([decode(n)] * many)
    assert 480 <= made.width <= 1200 and made.height <= 1200
    assert made.span == min(n, WIDEST // many) and made.start == n - made.span
    drawn = made.span * made.cell
    assert drawn + 2 * made.edge < made.panel_width
    assert made.above + made.edge + drawn + made.below < made.panel_height
    corners = [made.corner(i) for i in range(many)]
    for left, bottom in corners:
        assert 0 <= left and left + made.panel_width <= made.width
        assert 0 <= bottom and bottom + made.panel_height <= made.height
    assert corners[-1][0] - corners[0][0] == (many - 1) * made.panel_width


def test_a_cell_is_a_whole_number_of_stored_pixels():
    for n in (7, 23, 67, 160):
        cell = style.SHARPNESS * plan([decode(n)]).cell
        assert cell == int(cell)


def test_a_strip_is_small_and_names_the_edges_of_its_first_square_only():
    made = plan([decode(7 + k) for k in range(5)], strip=5)
    assert made.small and made.width <= 1200
    assert [panel.named for panel in made.panels] == [True] + [False] * 4
    assert [panel.notes[0][0] for panel in made.panels][:2] == ["1 row, 7 columns"] * 1 + [
        "1 row, 8 columns"
    ]
    two_lines = plan([decode(7)] * 10, strip=5)
    assert len({two_lines.corner(i)[1] for i in range(10)}) == 2


def test_room_for_all_gives_one_size_for_each():
    room = find_room([[square] for square in MADE])
    sizes = {(made.width, made.height) for made in (plan([square], room) for square in MADE)}
    assert len(sizes) == 1
    assert room.span == 13 and room.value_labels
    legends = [plan([square], room).states for square in MADE]
    assert all(legend == legends[0] for legend in legends)


def test_the_legend_is_that_of_the_columns_drawn():
    assert plan([decode(7)]).states == {"new", "read", "not computed", "ink"}
    assert "to come" in plan([decode(7)], Room(span=11)).states


def test_a_column_that_should_be_there_is_not_held_rather_than_still_to_come():
    shares = np.ones((10, 1))
    lost = square(["new"], [9], ["new"], own_columns=(0,), shares=shares, held_after=0)
    states = plan([decode(10), lost]).states
    assert "not held" in states and "to come" not in states
    assert {"not held", "to come"} <= plan([lost], Room(span=12)).states
    assert "not held" not in plan([decode(7)], Room(span=11)).states
    with style.scope():
        figure = painting.make_figure(plan([decode(10), lost]))
    grounds = {each.get_gid() for ax in figure.axes for each in ax.collections}
    assert "not held" in grounds and "to come" not in grounds


def test_values_get_room_for_labels_only_if_their_order_differs():
    usual, moved = plan([decode(7)]), plan([keys_in_front(7)])
    assert moved.below - usual.below == pytest.approx(VALUE_LABELS)
    assert moved.panel_height - usual.panel_height == pytest.approx(VALUE_LABELS, abs=2)
    assert (moved.width, moved.cell, moved.edge) == (usual.width, usual.cell, usual.edge)


def test_a_doubt_gets_a_separate_line_in_the_alarm_colour():
    notes = plan([decode(gap=0.1)]).panels[0].notes
    assert notes[-1][1] == style.ALARM and "not to be trusted" in notes[-1][0]
    assert all(color == style.QUIET for _, color in plan([decode()]).panels[0].notes)


def test_too_small_a_span_is_refused():
    with pytest.raises(ValueError, match="span 5: expected at least 7, the number of columns"):
        plan([decode(7)], Room(span=5))


def test_of_many_columns_the_newest_are_drawn():
    assert find_start([decode(163)]) == 3
    assert find_start([decode(163)] * 2) == 83
    assert find_start([decode(41)], small=True) == 1
