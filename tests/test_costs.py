"""The pictures of serving costs draw the numbers they are given, and say them too."""

import io
import warnings
from functools import cache
from itertools import combinations

import matplotlib as mpl
import numpy as np
import pytest
import test_colours
from matplotlib.backends.backend_agg import FigureCanvasAgg
from PIL import Image

import kvviz as kv
from kvviz.count import in_units
from kvviz.drawing import memory as costs
from kvviz.drawing import style

GROWS = {"a": [3, 4, 5, 6, 7, 8, 9], "b": [0, 2, 3, 4, 5, 0, 0]}
HELD = {name: 1024 * np.array(row) for name, row in GROWS.items()}
LAPTOP, GPU = {"flops": 100e9, "bandwidth": 15e9}, {"flops": 990e12, "bandwidth": 3.35e12}
WORK = {"decode": (0.5, 6e9), "prefill of 256 tokens": (128, 80e9)}
PREFILL = {"decode": (0.5, 6e9), "prefill of 8 tokens": (4, 40e9)}
PREFILL |= {"prefill of 64 tokens": (32, 71e9), "prefill of 256 tokens": (128, 80e9)}
PREFILL |= {"prefill of 512 tokens": (256, 84e9)}


def memory(held=HELD, **named):
    return kv.draw_memory(held, **{"title": "t", **named})


def roofline(points=WORK, **named):
    return kv.draw_roofline(points, **{"title": "t", **LAPTOP, **named})


def request(start, length, n=29):
    """Bytes of a request that grows by one token a step and is then released."""
    steps = np.arange(n)
    return np.where((steps >= start) & (steps < start + length), 450e2 * (2 + steps - start), 0)


def five():
    starts = {"costs $5 and $6": (0, 29), "😀 hello": (3, 11), "": (5, 7), "end": (27, 2)}
    held = {name: request(*span) for name, span in starts.items()}
    held["What is the tallest mountain in the world?"] = request(7, 2) / 9
    failed = {name: 14 for name in list(held)[1:3]}
    return memory(held, budget=2e6, failed={**failed, "end": 28})


def day():
    held = {i: request(7 * i % 260, 11 + i % 31, 289) for i in range(41)}
    return memory(held, x=np.arange(289) / 12, xlabel="hour", budget=7e6, failed={5: 3.0, 7: 3.5})


PICTURES = {
    "one": lambda: memory({"a": GROWS["a"]}),
    "two": lambda: memory(budget=13 * 1024, failed={"b": 5}),
    "no budget": lambda: memory(failed={"a": 6, "b": 6}),
    "five": five,
    "long name at the end": lambda: memory(
        {"a name that is cut to fit": range(13)}, failed={"a name that is cut to fit": 12}
    ),
    "day": day,
    "nothing held": lambda: memory({"a": [0]}),
    "a byte": lambda: memory({"a": [1]}, budget=1),
    "laptop": roofline,
    "five shapes": lambda: roofline(PREFILL),
    "one shape": lambda: roofline({"costs $5 and $6 and more than there is room for": (7, 1e9)}),
    "large GPU": lambda: roofline(
        {name: (x, 0.7 * min(990e12, 3.35e12 * x)) for name, (x, _) in PREFILL.items()}, **GPU
    ),
}


@cache
def drawn_once(name):
    """One picture, shared by all tests that only look at it."""
    return PICTURES[name]()


def drawn(picture, gid):
    """The only artist with this name."""
    (artist,) = [a for a in picture.figure.axes[1].get_children() if a.get_gid() == gid]
    return artist


def words(picture):
    return [text for ax in picture.figure.axes for text in ax.texts if text.get_text()]


# --- memory ---------------------------------------------------------------------------------


def test_each_band_is_as_high_as_its_bytes_and_stands_on_the_one_before():
    picture = memory()
    for name, row in HELD.items():
        tops, edges, floor = drawn(picture, f"band:{name}").get_data()
        assert (tops - floor).tolist() == row.tolist()
        assert edges.tolist() == list(range(8))
    assert floor.tolist() == HELD["a"].tolist()


def test_the_upper_edge_is_the_total_and_falls_where_a_request_ends():
    line = drawn(memory(), "total")
    total = [1024 * (a + b) for a, b in zip(*GROWS.values(), strict=True)]
    assert line.get_data().values.tolist() == total
    corners = line.get_path().vertices
    assert {y for x, y in corners.tolist() if x == 5} == {12 * 1024, 8 * 1024}


def test_each_moment_lasts_until_the_next_and_the_last_as_long_as_the_one_before():
    for x, edges in (([2, 3, 5, 7], [2, 3, 5, 7, 9]), ([11], [11, 12])):
        picture = memory({"a": [13] * len(x)}, x=x)
        assert drawn(picture, "band:a").get_data().edges.tolist() == edges


def test_the_cross_stands_at_its_moment_on_the_budget_that_was_exceeded():
    picture = memory(budget=13 * 1024, failed={"b": 5})
    cross = drawn(picture, "failed:b")
    assert cross.get_xydata().tolist() == [[5, 13 * 1024]]
    assert cross.get_color() == drawn(picture, "name:b failed").get_color() == style.ALARM
    assert cross.get_marker() not in {marker for *_, marker in style.SERIES}
    assert set(drawn(picture, "level:budget").get_ydata()) == {13 * 1024}
    assert drawn(picture, "level:budget").get_linestyle() == "--"
    assert drawn(picture, "name:budget").get_text() == "budget 13 KiB"


def test_without_a_budget_the_cross_stands_on_what_was_held_before_it_fell():
    assert drawn(memory(failed={"b": 5}), "failed:b").get_xydata().tolist() == [[5, 12 * 1024]]


@pytest.mark.parametrize(
    ("most", "unit"), [(700, "bytes"), (5 * 2**10, "KiB"), (3 * 2**20, "MiB"), (7 * 2**30, "GiB")]
)
def test_the_ticks_are_few_and_at_round_numbers_of_a_unit(most, unit):
    picture = memory({"a": [most / 3, most]})
    picture.png()
    axis = picture.figure.axes[1].yaxis
    low, high = axis.get_view_interval()
    ticks = [label.get_text() for label in axis.get_ticklabels()]
    seen = [t for t, at in zip(ticks, axis.get_ticklocs(), strict=True) if low <= at <= high]
    assert 3 <= len(seen) <= 8
    assert all(len(each.replace("0", "").replace(".", "")) <= 2 for each in seen)
    assert f"{unit} held" in [text.get_text() for text in words(picture)]


def test_a_name_stands_inside_its_band_or_on_a_pole_that_ends_in_it():
    held = {"wide": [97, 97, 97], "thin": [1, 1, 1]}
    picture = memory(held)
    assert 0 < drawn(picture, "name:wide").get_position()[1] < 97
    assert drawn(picture, "name:thin").get_position()[1] > 98
    poles = [a for a in picture.figure.axes[1].lines if a.get_marker() == "."]
    assert [pole.get_ydata()[0] for pole in poles] == [97.5]


def test_a_request_that_comes_back_is_named_in_each_piece_with_room():
    held = {"law": [30] * 9 + [0] * 9, "sea": [30] * 5 + [0] * 4 + [30] * 9, "thin": [0] * 17 + [1]}
    picture = memory(held)
    spots = [t.get_position() for t in picture.figure.axes[1].texts if t.get_text() == "sea"]
    (first, up), (second, down) = sorted(spots)
    assert 0 < first < 5 and up > 30 and 9 < second < 18 and down < 30
    assert [t.get_text() for t in picture.figure.axes[1].texts].count("law") == 1


def test_few_requests_are_named_and_many_are_not():
    names = [text.get_text() for text in words(memory({str(i): [7, 7] for i in range(5)}))]
    assert set("01234") <= set(names)
    assert not set("012345") & {
        text.get_text() for text in words(memory({str(i): [7, 7] for i in range(6)}))
    }


def test_of_many_requests_peak_and_average_are_marked_and_said():
    held = {str(i): [0] * i + [1024 * (7 + i)] * 3 + [0] * (6 - i) for i in range(6)}
    total, x = np.sum(list(held.values()), 0), [*range(8), 17]
    picture = memory(held, x=x, budget=1024 * 40)
    average = np.average(total, weights=[1] * 7 + [10] * 2)  # how long each lasts
    most = int(total.argmax())
    assert picture.sentence.endswith(
        f"at most {in_units(int(total[most]))} held, at step {x[most]}; budget 40 KiB; "
        f"average {in_units(round(average))}"
    )
    peak = drawn(picture, "peak")
    assert (peak.get_xdata()[0], peak.get_ydata()[0]) == (x[most] + 0.5, total[most])
    assert drawn(picture, "name:peak").get_text() == f"peak {in_units(int(total[most]))}"
    assert drawn(picture, "level:average").get_ydata()[0] == pytest.approx(average)
    few = memory({name: held[name] for name in "012"}, x=x)
    assert "average" not in few.sentence
    assert "peak" not in {a.get_gid() for a in few.figure.axes[1].lines}


@pytest.mark.parametrize("over", [1.0, 1.02, 1.06, 1.2])
def test_the_peaks_name_is_not_on_the_budget(over):
    held = {str(i): [0] * i + [1024 * 7] * 3 + [0] * (6 - i) for i in range(6)}
    picture = memory(held, budget=1024 * 21 * over)
    ax, name = picture.figure.axes[1], drawn(picture, "name:peak")
    box = name.get_window_extent(FigureCanvasAgg(picture.figure).get_renderer())
    line = ax.transData.transform((0, 1024 * 21 * over))[1]
    assert not box.y0 < line < box.y1


def test_names_that_are_alike_when_cut_each_stand_in_their_own_band():
    held = {"a very long name that is cut, " + end: [11, 11] for end in ("one", "two")}
    texts = [a for a in words(memory(held)) if a.get_text().startswith("a very")]
    assert sorted(text.get_position()[1] for text in texts) == [5.5, 16.5]


def test_the_sentence_says_how_much_was_held_and_who_failed_when():
    picture = memory(title="Two requests", budget=13 * 1024, failed={"b": 5})
    assert picture.sentence == (
        "Two requests: 2 requests over step 0 to 6; at most 12 KiB held, at step 4; "
        "budget 13 KiB; 'b' failed at step 5"
    )
    assert (
        memory({"a": [7]}).sentence == "t: 1 request over step 0; at most 7 bytes held, at step 0"
    )
    assert memory(sentence="Mine").sentence == "Mine"


def test_the_sentence_of_many_failures_counts_them_and_names_the_first():
    held = {i: [7] * 7 for i in range(7)}
    said = memory(held, failed={i: 6 - i for i in held}).sentence
    assert said.endswith("; 7 failed, the first: '6' failed at step 0")


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"held": {}}, "held: expected the bytes of at least one request"),
        ({"held": {"a": []}}, "at least one request"),
        ({"held": [1, 2]}, r"held: expected {name: bytes}, but got \[1, 2\]"),
        ({"budget": "7"}, "budget: expected a number above 0, but got '7'"),
        ({"held": {"a": [1, 2], "b": [1]}}, r"'b': expected 2 numbers, .* got shape \(1,\)"),
        ({"held": {"a": [1, -2]}}, "'a': expected bytes, 0 or more, but got -2"),
        ({"held": {"a": [1, float("nan")]}}, "expected bytes, 0 or more, but got nan"),
        ({"held": {"a": [1, float("inf")]}}, "expected bytes, 0 or more, but got inf"),
        ({"budget": 0}, "budget: expected a number above 0, but got 0"),
        ({"budget": float("nan")}, "budget: expected a number above 0, but got nan"),
        ({"failed": {"c": 1}}, "failed: expected a name that is in held, but got 'c'"),
        ({"failed": {"b": 7}}, "'b': expected one of the moments in x, 0 to 6, but got 7"),
        ({"x": [0, 1, 2, 3, 3, 4, 5]}, "x: expected moments in rising order, but got"),
        ({"x": [0, 1]}, "'a': expected 2 numbers"),
    ],
)
def test_impossible_memory_is_refused_with_what_was_expected_and_given(named, says):
    with pytest.raises(ValueError, match=says):
        memory(**named)


# --- roofline -------------------------------------------------------------------------------


@pytest.mark.parametrize("machine", [LAPTOP, GPU])
def test_the_roof_is_the_lower_of_what_memory_and_arithmetic_allow(machine):
    x, y = drawn(roofline(**machine), "roof").get_data()
    assert y == pytest.approx(np.minimum(machine["flops"], machine["bandwidth"] * x))
    assert x[1] == pytest.approx(machine["flops"] / machine["bandwidth"])
    assert x[0] < 0.5 and x[-1] > 128


def test_each_point_is_where_it_should_be_and_a_dashed_line_goes_up_to_the_roof():
    picture = roofline()
    for name, roof in (("decode", 7.5e9), ("prefill of 256 tokens", 100e9)):
        x, y = WORK[name]
        assert drawn(picture, f"point:{name}").get_xydata().tolist() == [[x, y]]
        assert drawn(picture, f"up:{name}").get_xydata().tolist() == [[x, y], [x, roof]]
        assert drawn(picture, f"up:{name}").is_dashed()


def test_the_ridge_is_marked_on_the_x_axis():
    picture = roofline()
    (line,) = drawn(picture, "ridge").get_segments()
    assert line[:, 0] == pytest.approx(100 / 15)
    assert drawn(picture, "name:ridge").get_text() == "ridge 6.67"


def test_the_parts_of_the_roof_are_named_along_them():
    picture = roofline()
    low, ridge, high = picture.figure.axes[1].transData.transform(
        drawn(picture, "roof").get_xydata()
    )
    slope = np.degrees(np.arctan2(ridge[1] - low[1], ridge[0] - low[0]))
    assert drawn(picture, "name:waits for memory").get_rotation() == pytest.approx(slope)
    assert drawn(picture, "name:waits for arithmetic").get_rotation() == 0


def test_the_sentence_tells_the_shape_and_nothing_of_the_machine():
    said = roofline(title="Two shapes of work").sentence
    assert said == (
        "Two shapes of work: decode, 0.5 operations a byte, waits for memory; "
        "prefill of 256 tokens, 128 operations a byte, waits for arithmetic"
    )
    faster = {"decode": (0.5, 7e9), "prefill of 256 tokens": (128, 99e9)}
    assert (
        roofline(faster, title="Two shapes of work", flops=130e9, bandwidth=23e9).sentence == said
    )


@pytest.mark.parametrize(
    ("x", "waits"),
    [(3, "waits for memory"), (5, "near the ridge"), (9, "near the ridge"),
     (11, "waits for arithmetic"), (1, "1 operation a byte, waits for memory")],
)  # fmt: skip
def test_within_a_factor_of_one_and_a_half_a_point_is_near_the_ridge(x, waits):
    assert roofline({"p": (x, 0.7 * min(100e9, 15e9 * x))}).sentence.endswith(waits)


@pytest.mark.parametrize(("x", "part"), [(0.5, "memory"), (5, "memory"), (60, "arithmetic")])
def test_what_is_far_below_its_roof_does_not_wait_for_it(x, part):
    roof = min(100e9, 15e9 * x)
    far, close = (roofline({"p": (x, share * roof)}) for share in (0.49, 0.51))
    assert far.sentence.endswith(f" a byte, under {part}'s ceiling; the drop: overhead")
    assert "ceiling" not in close.sentence and "overhead" not in close.sentence
    for picture in (far, close):
        assert "the drop: overhead" in [text.get_text() for text in words(picture)]
        (legend,) = [a for a in picture.figure.axes[0].lines if a.get_gid() == "legend:drop"]
        assert legend.get_linestyle() == drawn(picture, "up:p").get_linestyle()


@pytest.mark.parametrize(
    ("flops", "unit"),
    [(3e9, "millions of"), (100e9, "billions of"), (990e12, "trillions of"), (7, "operations")],
)
def test_operations_are_counted_in_a_unit_that_keeps_the_numbers_small(flops, unit):
    picture = roofline({"p": (1, flops / 11)}, flops=flops, bandwidth=flops / 7)
    assert any(text.get_text().startswith(unit) for text in words(picture))


@pytest.mark.parametrize(
    ("named", "says"),
    [
        ({"points": {}}, "points: expected {name: point}, at least one, but got {}"),
        ({"points": [(1, 2)]}, "points: expected {name: point}, at least one, but got"),
        ({"flops": None}, "flops: expected a number above 0, but got None"),
        ({"points": {"p": 3}}, r"'p': expected \(operations for each byte, .* got 3"),
        ({"points": {"p": (1, 2, 3)}}, r"got \(1, 2, 3\)"),
        ({"points": {"p": (0, 2)}}, "'p': expected a number above 0, but got 0"),
        (
            {"points": {"p": (1, float("inf"))}},
            "'p': expected a number above 0, but got inf",
        ),
        ({"flops": -1}, "flops: expected a number above 0, but got -1"),
        ({"bandwidth": float("nan")}, "bandwidth: expected a number above 0, but got nan"),
    ],
)
def test_an_impossible_roof_is_refused_with_what_was_expected_and_given(named, says):
    with pytest.raises(ValueError, match=says):
        roofline(**named)


# --- how both look --------------------------------------------------------------------------


@pytest.mark.parametrize("name", PICTURES)
def test_nothing_is_cut_off_and_no_two_texts_overlap(name):
    picture = drawn_once(name)
    inside, seen = picture.figure.bbox, []
    canvas = FigureCanvasAgg(picture.figure)
    for text in words(picture):
        box = text.get_window_extent(canvas.get_renderer())
        assert inside.x0 <= box.x0 and box.x1 <= inside.x1, text.get_text()
        assert inside.y0 <= box.y0 and box.y1 <= inside.y1, text.get_text()
        seen += [(text.get_text(), box)] if not text.get_rotation() else []
    ax = picture.figure.axes[1]
    for tick in [*ax.get_xticklabels(), *ax.get_yticklabels()]:
        box = tick.get_window_extent(canvas.get_renderer())
        centre = (box.x0 + box.x1) / 2, (box.y0 + box.y1) / 2
        beyond = np.subtract(centre, ax.bbox.max).max() > 0
        seen += [] if beyond else [(tick.get_text(), box)]  # a tick out of sight is not drawn
    for (one, box), (other, there) in combinations(seen, 2):
        deep = min(box.y1, there.y1) - max(box.y0, there.y0)
        wide = min(box.x1, there.x1) - max(box.x0, there.x0)
        assert min(deep, wide) < 3, (one, other)  # boxes hold room for accents


@pytest.mark.parametrize("name", PICTURES)
def test_every_text_can_be_read_and_lies_on_no_line(name):
    test_colours.check_contrast(PICTURES[name]().figure)


@pytest.mark.parametrize("name", PICTURES)
def test_the_png_has_a_palette_is_opaque_and_small(name):
    png = drawn_once(name).png()
    image = Image.open(io.BytesIO(png))
    assert image.mode == "P" and "transparency" not in image.info
    assert image.convert("RGB").getpixel((0, 0)) == (255, 255, 255)
    assert len(png) < 40_000


@pytest.mark.parametrize("name", ["two", "five shapes"])
def test_the_png_is_the_same_every_time(name):
    assert drawn_once(name).png() == PICTURES[name]().png()


def test_neighbours_are_told_apart_by_every_eye_and_by_a_line_of_paper():
    dark, light = costs.BANDS
    assert test_colours.distance(dark, light) > test_colours.APART
    assert test_colours.distance(light, style.PAPER) > test_colours.APART
    picture = memory({name: [7, 7] for name in "abc"})
    bands = [drawn(picture, f"band:{name}") for name in "abc"]
    fills = [test_colours.to_hex(band.get_facecolor()) for band in bands]
    assert fills == [dark, light, dark]
    assert all(test_colours.to_hex(band.get_edgecolor()) == style.PAPER for band in bands)
    png = Image.open(io.BytesIO(picture.png())).convert("RGB")
    colors = {color for _, color in png.getcolors(10**6)}
    assert {tuple(bytes.fromhex(fill[1:])) for fill in fills} <= colors


def test_points_are_told_apart_by_their_markers():
    points = {str(i): (i + 1, 1e9) for i in range(7)}
    picture = roofline(points)
    markers = [drawn(picture, f"point:{name}") for name in points]
    assert len({(m.get_marker(), m.get_markerfacecolor() == style.PAPER) for m in markers}) == 7


NAMES = ["pay $_$ now", "costs $5 and $6", r"$\frac$", "a_{b", "100 %"]


@pytest.mark.parametrize("name", NAMES)
def test_titles_and_names_are_drawn_as_typed_and_nothing_warns(name):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for picture in (
            memory({name: [7, 11]}, title=name, xlabel=name, failed={name: 1}),
            roofline({name: (3, 7e9)}, title=name),
        ):
            FigureCanvasAgg(picture.figure).draw()
            assert [text.get_text() for text in words(picture)].count(name) >= 2
            assert name in picture.sentence


def test_settings_outside_are_untouched():
    with mpl.rc_context({"font.size": 31, "path.sketch": (9, 99, 9)}):
        before = dict(mpl.rcParams)
        pngs = [PICTURES[name]().png() for name in ("two", "laptop")]
        assert dict(mpl.rcParams) == before
    assert pngs == [drawn_once(name).png() for name in ("two", "laptop")]
