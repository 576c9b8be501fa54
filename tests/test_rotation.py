"""An arrow points where the pair's numbers say, and only a rotation is called one."""

import numpy as np
import pytest
import torch
from matplotlib.colors import to_hex
from test_colours import check_contrast, distance
from texts_apart import check_texts

import kvviz as kv
from kvviz.drawing import style

FORGE = kv.Forge.small()
KEY = torch.randn(14, generator=torch.Generator().manual_seed(1))
VALUE = torch.randn(14, generator=torch.Generator().manual_seed(2))


def turn(key, positions, forge=FORGE):
    """{position: the key as the forge rotates it to there}."""
    rotation = forge.rotation(torch.tensor(list(positions)))
    turned = forge.rotate(key.expand(1, 1, len(positions), -1), rotation)[0, 0]
    return dict(zip(positions, turned, strict=True))


def canvas(picture):
    return picture.figure.axes[0]


def find(picture, gid):
    return [a for a in canvas(picture).collections if a.get_gid() == gid]


def texts(picture, start=""):
    words = [t for t in canvas(picture).texts if (t.get_gid() or "").startswith(start)]
    return {t.get_gid(): t.get_text() for t in words}


def arrow(picture, kind, pair, j):
    """Middle and tip of an arrow, in pixels with y upwards."""
    name = f"arrow:{kind}:{pair}:{j}"
    (shaft,), (head,) = find(picture, f"{name}:shaft"), find(picture, name)
    middle = shaft.get_segments()[0][0]
    return middle * (1, -1), head.get_paths()[0].vertices[0] * (1, -1)


def circle(picture, kind, pair, j):
    """Middle and radius of a dial's circle."""
    (around,) = find(picture, f"circle:{kind}:{pair}:{j}")
    points = around.get_segments()[0] * (1, -1)
    middle = (points.min(0) + points.max(0)) / 2
    return middle, np.hypot(*(points - middle).T).max()


# --- arrows ---------------------------------------------------------------------------------


@pytest.mark.parametrize("pair", [0, 1, 6])
def test_an_arrow_points_to_number_i_and_number_i_plus_half(pair):
    keys = turn(KEY, (0, 3, 7))
    picture = kv.draw_rotation(keys)
    for j, key in enumerate(keys.values()):
        middle, tip = arrow(picture, "key", pair, j)
        x, y = key[pair].item(), key[pair + 7].item()
        assert np.allclose(
            (tip - middle) / np.hypot(*(tip - middle)), np.array([x, y]) / np.hypot(x, y), atol=1e-5
        )


def test_tips_of_a_rotated_key_stay_on_the_circle_and_others_leave_it():
    keys = turn(KEY, (0, 3, 7))
    keys[3] = keys[3] * 0.5
    picture = kv.draw_rotation(keys, pairs=[2])
    for j, share in enumerate([1, 0.5, 1]):
        middle, tip = arrow(picture, "key", 2, j)
        at, radius = circle(picture, "key", 2, j)
        assert np.hypot(*(tip - middle)) == pytest.approx(share * radius, rel=0.02)
        assert np.allclose(at, middle, atol=0.5)


def test_the_first_arrow_is_repeated_dashed_in_every_other_dial_and_the_turn_is_tinted():
    picture = kv.draw_rotation(turn(KEY, (0, 3, 7)))
    assert not find(picture, "first:key:0:0") and not find(picture, "sector:key:0:0")
    middle, tip = arrow(picture, "key", 0, 0)
    for j in (1, 2):
        (first,) = find(picture, f"first:key:0:{j}")
        (start, end), here = first.get_segments()[0] * (1, -1), arrow(picture, "key", 0, j)[0]
        assert first.get_linestyle()[0][1] and np.allclose(start, here)
        assert np.allclose(end - start, tip - middle, atol=0.5)
        assert find(picture, f"sector:key:0:{j}") and find(picture, f"arc:key:0:{j}")
    assert not find(picture, "sector:key:6:1"), "the slowest pair has hardly turned"


def test_the_arc_goes_from_the_first_arrow_to_this_one():
    picture = kv.draw_rotation(turn(KEY, (0, 3, 7)))
    for pair, j in ((0, 1), (0, 2), (1, 1)):
        middle, tip = arrow(picture, "key", pair, j)
        ends = find(picture, f"arc:key:{pair}:{j}")[0].get_segments()[0][[0, -1]] * (1, -1) - middle
        first = find(picture, f"first:key:{pair}:{j}")[0].get_segments()[0][1] * (1, -1) - middle
        for end, to in zip(ends, (first, tip - middle), strict=True):
            assert end @ to == pytest.approx(np.hypot(*end) * np.hypot(*to), rel=1e-3)


# --- angles ---------------------------------------------------------------------------------


def test_angles_are_the_forges_own_with_whole_turns():
    positions = (0, 3, 7, 8)
    picture = kv.draw_rotation(turn(KEY, positions))
    for pair in (0, 1, 6):
        rate = np.degrees(FORGE.frequencies[pair].item())
        for j, position in enumerate(positions):
            assert texts(picture)[f"angle:key:{pair}:{j}"] == f"{round(rate * position)}°"
    assert texts(picture)["angle:key:0:2"] == "401°"
    assert texts(picture)["name:key:0:2"] == "57° per position"
    assert texts(picture)["name:key:6:1"] == "numbers 6 and 13"


def test_where_several_rates_fit_whole_turns_are_not_counted_and_it_says_so():
    picture = kv.draw_rotation(turn(KEY, (0, 90)), pairs=[0])
    assert texts(picture)["angle:key:0:1"] == f"{round(np.degrees(90)) % 360}°"
    assert texts(picture)["name:key:0:2"] == "whole turns not counted"
    assert "turns 0°, 117°, whole turns not counted; " in picture.sentence


def test_back_is_a_turn_the_other_way():
    said = kv.draw_rotation(turn(KEY, (7, 3, 0)), pairs=[0]).sentence
    assert "pair 0 (numbers 0 and 7) turns 57° per position: 0°, −229°, −401°; " in said


@pytest.mark.parametrize("base", [100.0, 1e4, 1e6])
@pytest.mark.parametrize("positions", [(0, 1, 2), (5, 6), (0, 3, 7), (2, 3, 50), (8, 0, 7)])
def test_every_pairs_rate_is_found_from_the_numbers_alone(base, positions):
    rates = base ** -(torch.arange(7) / 7)
    angles = torch.tensor(positions)[:, None].double() * rates
    keys = {p: torch.cat([a.cos(), a.sin()]) for p, a in zip(positions, angles, strict=True)}
    said = kv.draw_rotation(keys, pairs=range(7)).sentence
    for pair, rate in enumerate(np.degrees(rates.tolist())):
        words = f"{rate:.2g}" if rate < 10 else f"{rate:.0f}"
        words = "under 0.01" if rate < 0.01 else words
        assert f"pair {pair} (numbers {pair} and {pair + 7}) turns {words}° per position: " in said


def test_a_key_rotated_twice_turns_twice_as_fast():
    twice = {p: turn(key, (0, p))[p] if p else key for p, key in turn(KEY, (0, 1, 2)).items()}
    said = kv.draw_rotation(twice, pairs=[0]).sentence
    assert "pair 0 (numbers 0 and 7) turns 115° per position: 0°, 115°, 229°; " in said


def test_rounding_the_other_way_is_no_whole_turn():
    picture = kv.draw_rotation({0: [1.0, 0], 1: [1.0, -1e-6], 2: [1.0, 1e-6]})
    assert "turns under 0.01° per position: 0°, 0°, 0°; " in picture.sentence


def test_a_pair_without_length_has_no_direction():
    key = KEY.clone()
    key[0] = key[7] = 0
    picture = kv.draw_rotation(turn(key, (0, 3)), pairs=[0, 1])
    assert texts(picture)["angle:key:0:1"] == "–"
    assert "pair 0 (numbers 0 and 7) is too short to have a direction; pair 1" in picture.sentence


# --- what is said ---------------------------------------------------------------------------


def test_the_sentence_says_how_far_each_pair_turns_and_that_no_length_changes():
    assert kv.draw_rotation(turn(KEY, (0, 3, 7))).sentence == (
        "A key turns with its position: at positions 0, 3 and 7; "
        "pair 0 (numbers 0 and 7) turns 57° per position: 0°, 172°, 401°; "
        "pair 1 (numbers 1 and 8) turns 15° per position: 0°, 46°, 108°; "
        "pair 6 (numbers 6 and 13) turns 0.021° per position: 0°, 0°, 0°; "
        "each of its 7 pairs keeps its length"
    )
    assert kv.draw_rotation(turn(KEY, (0, 3)), title="t", sentence="mine").sentence == "mine"


def test_lengths_that_differ_are_an_alarm_also_in_a_pair_that_is_not_drawn():
    keys = turn(KEY, (0, 3, 7))
    keys[7] = keys[7].clone()
    keys[7][[4, 11]] *= 1.5
    picture = kv.draw_rotation(keys, pairs=[0])
    says = "1 pair of 7 changes its length, pair 4 by 50%: that isn't a rotation alone"
    assert picture.sentence.endswith(says)
    assert picture.sentence.startswith("A key that doesn't only turn: ")
    (line,) = [t for t in canvas(picture).texts if t.get_gid() == "lengths"]
    assert line.get_text() == says and to_hex(line.get_color()) == style.ALARM


def test_rounding_is_no_change_of_length():
    keys = {p: key.bfloat16() for p, key in turn(KEY, (0, 3, 7)).items()}
    assert "each of its 7 pairs keeps its length" in kv.draw_rotation(keys).sentence


def test_a_turn_that_fits_no_rate_is_said_to_be_uneven():
    keys = turn(KEY, (0, 1, 2))
    keys[2] = turn(KEY, (0, 3))[3]
    assert "turns 0°, 57°, 172°, at no steady rate; " in kv.draw_rotation(keys, pairs=[0]).sentence


def test_keys_that_were_not_rotated_are_not_said_to_turn():
    picture = kv.draw_rotation({p: KEY for p in (0, 3, 7)})
    assert picture.sentence.startswith("A key that doesn't turn: ")
    assert {*texts(picture, "angle").values()} == {"0°"}


def test_a_value_beside_the_key_keeps_its_direction():
    keys, values = turn(KEY, (0, 3, 7)), {p: VALUE for p in (7, 0, 3)}
    picture = kv.draw_rotation(keys, values=values)
    assert picture.sentence.startswith("A key carries its position, a value doesn't: ")
    assert picture.sentence.endswith("; the value is the same at every position")
    middles_and_tips = [arrow(picture, "value", 0, j) for j in range(3)]
    ways = [tip - middle for middle, tip in middles_and_tips]
    assert np.allclose(ways, ways[0]) and ways[0] @ VALUE[[0, 7]].numpy() > 0
    assert texts(picture)["name:value:0:2"] == "doesn't turn"
    heads = [find(picture, f"arrow:{kind}:0:1")[0] for kind in ("key", "value")]
    assert [to_hex(a.get_facecolor()[0]) for a in heads] == [style.KEYS, style.VALUES]
    assert min(a.get_paths()[0].vertices[:, 1].min() for a in heads[1:]) > max(
        a.get_paths()[0].vertices[:, 1].max() for a in find(picture, "arrow:key:6:1")
    ), "the value stands under all pairs of the key, so no eye needs the colour"
    assert distance(style.VALUES, style.PAPER) > 40


def test_a_value_that_differs_is_not_said_to_be_the_same():
    values = {0: VALUE, 3: VALUE * 1.2}
    said = kv.draw_rotation(turn(KEY, (0, 3)), values=values).sentence
    assert said.endswith("; the value differs between positions")
    picture = kv.draw_rotation(turn(KEY, (0, 3)), values={3: -VALUE, 0: VALUE})
    for j, sign in enumerate((1, -1)):
        middle, tip = arrow(picture, "value", 0, j)
        assert sign * (tip - middle) @ VALUE[[0, 7]].numpy() > 0
    assert said.startswith("A key turns with its position: ")


def test_positions_beyond_the_width_are_left_out_and_it_says_so():
    picture = kv.draw_rotation(turn(KEY, range(14)), pairs=[0])
    drawn = [words for gid, words in texts(picture, "position:").items()]
    left_out = 14 - len(drawn)
    assert drawn == [str(p) for p in range(len(drawn))] and left_out > 0
    assert picture.sentence.endswith(f"; the last {left_out} positions aren't drawn")
    assert texts(picture)["note"] == f"the last {left_out} positions aren't drawn"


# --- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "options", "says"),
    [
        ([KEY, KEY], {}, "keys: expected {position: D numbers}, but got list of length 2"),
        (None, {}, "keys: expected {position: D numbers}, but got None"),
        ({0: KEY}, {}, "keys: expected at least two positions, but got 1"),
        ({0: KEY, "a": KEY}, {}, "keys, position: expected a whole number of at least 0, but"),
        ({0: KEY, -1: KEY}, {}, "keys, position: expected a whole number of at least 0, but"),
        ({0: KEY, 1: KEY[None]}, {}, r"keys\[1\]: expected D finite numbers, .* shape \(1, 14\)"),
        ({0: KEY, 1: KEY / 0}, {}, r"keys\[1\]: expected D finite numbers, but got some that"),
        ({0: KEY, 1: ["x"] * 14}, {}, r"keys\[1\]: expected numbers, but got 'x'"),
        ({0: KEY, 1: KEY[:12]}, {}, r"an even number of numbers at each position, got \[12, 14\]"),
        ({0: KEY[:13], 1: KEY[:13]}, {}, "keys: expected an even number"),
        ({0: [], 1: []}, {}, "keys: expected an even number"),
        ({0: KEY, 1: KEY}, {"pairs": 0}, "pairs: expected a list of numbers, but got 0"),
        ({0: KEY, 1: KEY}, {"pairs": [7]}, r"pairs: expected 1 to 8 of 0 to 6, but got \[7\]"),
        ({0: KEY, 1: KEY}, {"pairs": []}, "pairs: expected 1 to 8 of 0 to 6"),
        ({0: KEY, 1: KEY}, {"pairs": [True]}, "pairs: expected 1 to 8 of 0 to 6"),
        ({0: KEY, 1: KEY}, {"values": {0: KEY, 2: KEY}}, "values: expected the keys' positions"),
        ({0: KEY, 1: KEY}, {"values": [KEY]}, "values: expected {position: D numbers}"),
        (
            {0: KEY, 1: KEY},
            {"values": {0: KEY[:4], 1: KEY[:4]}, "pairs": [5]},
            "pairs: a value of 4 numbers has no pair 5",
        ),
    ],
)
def test_anything_but_a_key_at_several_positions_is_refused(keys, options, says):
    with pytest.raises(ValueError, match=says) as caught:
        kv.draw_rotation(keys, **options)
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 160


# --- what it looks like ---------------------------------------------------------------------


def _uneven():
    keys = turn(KEY, (0, 1, 2))
    return {**keys, 2: keys[2] * torch.linspace(1.6, 1, 14)}


LOOKS = {
    "three": lambda: kv.draw_rotation(turn(KEY, (0, 3, 7))),
    "two numbers": lambda: kv.draw_rotation({0: [1.0, 0], 1: [0.0, 1]}),
    "values": lambda: kv.draw_rotation(turn(KEY, (0, 3, 7)), values={p: VALUE for p in (0, 3, 7)}),
    "eight pairs": lambda: kv.draw_rotation(
        {p: torch.cat([KEY, KEY + 1, KEY - 1]) for p in range(20)}, pairs=range(8)
    ),
    "no rotation": lambda: kv.draw_rotation(_uneven(), title="A title that is rather long, " * 2),
    "far": lambda: kv.draw_rotation(turn(KEY, (0, 8000, 123456))),
    "nothing": lambda: kv.draw_rotation({0: [0.0, 0], 9: [0.0, 0]}),
}


@pytest.mark.parametrize("name", LOOKS)
def test_every_text_is_inside_readable_and_apart(name):
    picture = LOOKS[name]()
    assert picture.width <= 760 and picture.height <= 1000
    check_texts(picture.figure, rotated=True)
    if name != "eight pairs":
        check_contrast(picture.figure)


def test_an_arrow_stays_in_its_dial():
    picture = kv.draw_rotation(_uneven())
    for pair in (0, 1, 6):
        for j in range(3):
            middle, tip = arrow(picture, "key", pair, j)
            assert np.hypot(*(tip - middle)) <= 48
