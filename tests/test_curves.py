"""Stairs are as high as their numbers and say their sums; rounding is never drawn as a number."""

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from test_colours import check_contrast

import kvviz as kv
from kvviz.drawing import style

P, N = 20, 200
LOOPS = {"without a cache": [P + k for k in range(N)], "with a cache": [P] + [1] * (N - 1)}
FEW = {"without a cache": [6, 7, 8, 9], "with a cache": [6, 1, 1, 1]}


def stairs(curves=LOOPS, **options):
    x = range(len(next(iter(curves.values()))))
    options = {"areas": "positions", **options}
    return kv.draw_curves(x, curves, title="Work", xlabel="step", stairs=True, **options)


def gaps(curves, rounding=1e-3, **options):
    x = range(len(next(iter(curves.values()))))
    return kv.draw_curves(x, curves, title="Gaps", log=True, rounding=rounding, **options)


def chart(picture):
    return picture.figure.axes[1]


def drawn(picture, gid):
    return [each for each in chart(picture).get_children() if each.get_gid() == gid]


def words(picture):
    return {text.get_gid(): text for text in chart(picture).texts}


# --- stairs ---------------------------------------------------------------------------------


@pytest.mark.parametrize("curves", [LOOPS, FEW])
def test_each_step_is_as_high_as_its_number_and_centred_on_its_x(curves):
    picture = stairs(curves)
    for name, y in curves.items():
        (area,) = drawn(picture, f"area:{name}")
        assert area.get_data().values.tolist() == y
        assert area.get_data().edges.tolist() == [k - 0.5 for k in range(len(y) + 1)]
        assert area.get_fill()
    assert chart(picture).get_ylim()[0] == 0


@pytest.mark.parametrize("order", [1, -1])
def test_the_smaller_area_is_in_front(order):
    picture = stairs(dict(list(FEW.items())[::order]))
    areas = [each.get_gid() for each in chart(picture).patches if "area" in str(each.get_gid())]
    assert areas == ["area:without a cache", "area:with a cache"]


def test_areas_say_their_sums_inside_if_they_fit_or_else_under_the_name():
    picture = stairs()
    texts = {text.get_text(): text for text in chart(picture).texts}
    inside = texts["23,900 positions in all"]
    x, y = inside.get_position()
    assert 0 < y < P + x
    outside, name = texts["219 positions in all"], texts["with a cache"]
    assert outside.get_position()[0] == name.get_position()[0] > 1
    assert outside.get_position()[1] < name.get_position()[1]
    renderer = FigureCanvasAgg(picture.figure).get_renderer()
    box = inside.get_window_extent(renderer)
    corners = chart(picture).transData.inverted().transform([(box.x0, box.y1), (box.x0, box.y0)])
    assert corners[0][1] < P + corners[0][0] and corners[1][1] > 1  # clear of both outlines


def test_the_sentence_says_the_sums():
    assert stairs(FEW).sentence == (
        "Work: without a cache goes from 6 to 9, 30 positions in all; "
        "with a cache goes from 6 to 1, 9 positions in all; over step 0 to 3"
    )
    assert "in all" not in stairs(FEW, areas="").sentence
    assert "23,900 positions in all" in stairs().sentence


def test_few_steps_each_have_a_tick():
    assert chart(stairs(FEW)).get_xticks().tolist() == [0, 1, 2, 3]
    assert max(chart(stairs()).get_xticks()) < N


# --- curves that end early ------------------------------------------------------------------


def early(**more):
    nan = float("nan")
    curves = {"grows": [1, 2, 3, 4, 5, 6], "ends early": [2, 4, 5, nan, nan, nan], **more}
    return kv.draw_curves(range(0, 60, 10), curves, title="Memory", xlabel="token")


def test_a_curve_below_zero_is_named_at_its_end():
    picture = kv.draw_curves([0, 1], {"low": [1, -17], "high": [-3, 8]}, title="Scores")
    FigureCanvasAgg(picture.figure).draw()
    for name, y in {"low": -17, "high": 8}.items():
        at = chart(picture).transData.transform((1, y))
        named = words(picture)[f"name:{name}"]
        spot = named.get_transform().transform(named.get_position())
        assert abs(spot[1] - at[1]) < 2


def test_a_curve_that_ends_early_is_named_at_its_own_end():
    picture = early()
    ax, renderer = chart(picture), FigureCanvasAgg(picture.figure).get_renderer()
    box = words(picture)["name:ends early"].get_window_extent(renderer)
    x, y = ax.transData.transform((20, 5))
    assert np.hypot(box.x0 - x, (box.y0 + box.y1) / 2 - y) < 25
    assert words(picture)["name:grows"].get_position()[0] > 1


def test_its_name_goes_to_the_right_where_its_end_is_crowded():
    walls = {f"wall {k}": [4.2 + k / 4] * 6 for k in range(8)}
    assert words(early(**walls))["name:ends early"].get_position()[0] == 1.015


def test_the_sentence_says_where_a_curve_ends_and_never_nan():
    assert early().sentence == (
        "Memory: grows goes from 1 to 6; ends early goes from 2 to 5 at token 20; "
        "over token 0 to 50"
    )
    nan = float("nan")
    late = early(late=[nan, 3, 3, 3, 3, 2], none=[nan] * 6).sentence
    assert "late goes from 3 at token 10 to 2; none has no finite number;" in late
    assert "nan" not in late


# --- rounding -------------------------------------------------------------------------------


def test_rounding_is_a_hollow_mark_in_a_band_and_not_on_the_curve():
    picture = gaps({"gap": [10, 4, 1e-6, 0]})
    (line,), (marks,) = drawn(picture, "line:gap"), drawn(picture, "rounding:gap")
    assert np.nan_to_num(line.get_ydata(), nan=-1).tolist() == [10, 4, -1, -1]
    assert marks.get_xdata().tolist() == [2, 3]
    low, _ = chart(picture).get_ylim()
    assert all(low < y < 1e-3 for y in marks.get_ydata())
    assert to_hex(marks.get_markerfacecolor()) == style.PAPER
    (band,) = drawn(picture, "rounding")
    corners = band.get_path().vertices if not hasattr(band, "get_y") else None
    top = band.get_y() + band.get_height() if corners is None else corners[:, 1].max()
    assert top == pytest.approx(1e-3)
    assert "rounding" in {text.get_text() for text in chart(picture).texts}
    assert all(tick >= 1e-3 for tick in chart(picture).get_yticks())


def test_the_sentence_says_rounding_instead_of_a_number():
    tail = "; rounding is at most 0.001; over x 0 to 3"
    assert gaps({"gap": [10, 4, 2, 1e-6]}).sentence == f"Gaps: gap goes from 10 to rounding{tail}"
    assert gaps({"gap": [0, 0, 1e-3, 0]}).sentence == f"Gaps: gap is rounding throughout{tail}"
    between = "gap goes from 10 to 3, with 1 of 4 rounding"
    assert gaps({"gap": [10, 4, 1e-6, 3]}).sentence == f"Gaps: {between}{tail}"


def test_what_is_above_rounding_stays_a_number():
    picture = gaps({"gap": [10, 4, 1.1e-3]})
    assert drawn(picture, "rounding:gap") == []
    assert drawn(picture, "line:gap")[0].get_ydata().tolist() == [10, 4, 1.1e-3]
    assert "to 0.0011;" in picture.sentence


def test_a_curve_that_ends_in_rounding_is_named_beside_the_band():
    picture = gaps({"gap": [10, 4, 0], "other": [5, 5, 5]})
    at = {name: words(picture)[f"name:{name}"].get_position()[1] for name in ("gap", "other")}
    assert at["gap"] < 0.13 < at["other"]


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"stairs": True, "log": True}, "stairs=True: expected a linear axis"),
        ({"x": [0, 2, 1], "stairs": True}, "stairs=True: expected an x that rises"),
        ({"areas": "rows"}, "areas: expected stairs=True"),
        ({"rounding": 1e-3}, "rounding: expected a number above 0, and log=True"),
        ({"rounding": 0, "log": True}, "rounding: expected a number above 0"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options, says):
    with pytest.raises(ValueError, match=says):
        kv.draw_curves(**{"x": range(3), "curves": {"a": [1, 2, 3]}, "title": "t", **options})


MANY = {
    "stairs": lambda: stairs(),
    "few stairs": lambda: stairs(FEW),
    "one stair": lambda: stairs({"a": [6]}),
    "three": lambda: stairs({"a": range(9), "b": [3] * 9, "c": [0] * 9}),
    "rounding": lambda: gaps({"gap": [10, 4, 0], "other": [5, 0, 5], "last": [1e-9] * 3}),
    "ends early": lambda: early(),
    "only rounding": lambda: gaps({"gap": [0, 0, 0]}, levels={"gate": 0.01}),
}


@pytest.mark.parametrize("name", MANY)
def test_every_text_is_inside_readable_and_apart(name):
    picture = MANY[name]()
    renderer = FigureCanvasAgg(picture.figure).get_renderer()
    boxes = []
    for ax in picture.figure.axes:
        texts = list(ax.texts)
        for axis, (low, high) in ((ax.xaxis, ax.get_xlim()), (ax.yaxis, ax.get_ylim())):
            spots = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            texts += [text for at, text in spots if ax.axison and low <= at <= high]
        boxes += [text.get_window_extent(renderer) for text in texts if text.get_text()]
    for i, box in enumerate(boxes):
        assert 0 <= box.x0 < box.x1 <= picture.figure.bbox.x1
        assert 0 <= box.y0 < box.y1 <= picture.figure.bbox.y1
        assert not any(box.padded(-2).overlaps(other.padded(-2)) for other in boxes[:i])
    check_contrast(picture.figure)
