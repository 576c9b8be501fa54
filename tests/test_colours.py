"""No picture says anything by hue alone: whatever an eye can't tell apart has a different mark or
position, and every text is readable on its background."""

from itertools import combinations

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg, RendererAgg
from matplotlib.colors import to_hex, to_rgb
from squares import Run, chunk, decode, padded, plain, square, static, window

import kvviz as kv
from kvviz.drawing import marks, style

ROLES = ("keys", "values", "queries", "outputs")
APART = 9  # CIE76; about 2 is just visible if two colours touch
FAR = 18  # for neighbours on a scale, anywhere in the picture
# Machado, Oliveira and Fernandes 2009, severity 1, linear RGB; grey keeps the luminance only.
EYES = {
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
    "grey": [[0.2126, 0.7152, 0.0722]] * 3,
}
TO_XYZ = [[0.4124, 0.3576, 0.1805], [0.2126, 0.7152, 0.0722], [0.0193, 0.1192, 0.9505]]


def lab(color, eye):
    rgb = np.array(to_rgb(color))
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    seen = np.clip(np.array(EYES[eye]) @ linear, 0, 1)
    xyz = np.array(TO_XYZ) @ seen / np.sum(TO_XYZ, 1)
    x, y, z = np.where(xyz > 0.008856, np.cbrt(xyz), 7.787 * xyz + 16 / 116)
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def distance(one, other):
    """As seen by the eye that distinguishes them least."""
    return min(np.linalg.norm(lab(one, eye) - lab(other, eye)) for eye in EYES)


def test_the_distance_is_that_of_the_standard():
    assert np.allclose(lab("#ff0000", "usual"), [53.2, 80.1, 67.2], atol=0.1)
    assert distance("#000000", "#ffffff") == pytest.approx(100, abs=0.1)
    assert distance("#ff0000", "#ff0000") == 0
    assert (
        distance("#d01010", "#107010")
        < 45
        < np.linalg.norm(lab("#d01010", "usual") - lab("#107010", "usual"))
    )


@pytest.mark.parametrize("role", ROLES)
def test_every_eye_can_tell_new_recomputed_and_read_apart(role):
    fills = {state: style.fill(role, state) for state in ("new", "recomputed", "read")}
    for one, other in combinations(fills.values(), 2):
        assert distance(one, other) > FAR
    assert distance(fills["read"], style.PAPER) > APART
    assert distance(fills["read"], style.TO_COME) > APART


@pytest.mark.parametrize("role", ROLES)
def test_states_that_look_alike_on_an_edge_have_different_marks(role):
    states = ("new", "recomputed", "read", "earlier", "dropped", "pad")
    for one, other in combinations(states, 2):
        if distance(style.fill(role, one), style.fill(role, other)) <= FAR:
            shapes = [
                [path.vertices.round(3).tolist() for a in marks.make_mark(role, state, [0], [0])
                 for path in a.get_paths()]
                for state in (one, other)
            ]  # fmt: skip
            assert shapes[0] != shapes[1], (one, other)
    for state in states:  # and a mark is visible on its background
        for mark in marks.make_mark(role, state, [0], [0]):
            ground = style.fill(role, state)
            assert distance(to_hex(mark.get_facecolor()[0]), ground) > FAR


@pytest.mark.parametrize("make", [plain, decode, chunk])
def test_roles_that_an_eye_cannot_tell_apart_stand_on_four_sides_and_are_named(make):
    alike = [
        pair for pair in combinations(ROLES, 2) if distance(*(style.ROLES[r] for r in pair)) < FAR
    ]
    assert alike  # for some eye, so colour alone wouldn't be enough
    drawn = make()
    ax = kv.draw_step(drawn).figure.axes[0]
    side = {}
    for cells in (a for a in ax.collections if isinstance(a, marks.Cells) and a.role in ROLES):
        x, y = np.mean([path.vertices[:4].mean(0) for path in cells.get_paths()], 0)
        n = drawn.n_columns
        here = "left" if x < 0 else "right" if x > n else "top" if y < 0 else "bottom"
        assert side.setdefault(cells.role, here) == here
    assert len(set(side.values())) == 4
    assert {f"name:{role}" for role in ROLES} <= {a.get_gid() for a in ax.texts}


def test_ink_masked_and_what_is_still_to_come_differ_by_more_than_a_shade():
    assert distance(style.ink(0), style.PAPER) > 5 and distance(style.ink(1), style.PAPER) > 90
    ax = kv.draw_step(plain(), span=11).figure.axes[0]
    looks = {a.state: a for a in ax.collections if isinstance(a, marks.Cells)}
    assert looks["masked"].get_hatch() and not looks["ink"].get_hatch()
    hatch = to_hex(looks["masked"].get_edgecolor()[0])
    assert distance(hatch, style.PAPER) > APART
    assert any(a.get_gid() == "attention:not computed:dash" for a in decoded())
    ground = next(a for a in ax.collections if a.get_gid() == "to come")
    assert ground.get_paths()[0].vertices.max() == 11  # beyond the seventh row and column
    shares = [style.ink(share) for share in np.linspace(0, 1, 11)]
    assert min(distance(a, b) for a, b in zip(shares, shares[1:], strict=False)) > 5


def decoded():
    return kv.draw_step(decode()).figure.axes[0].collections


def test_every_alarm_also_has_words_or_a_hatch():
    notes = [a for ax in kv.draw_step(decode(gap=0.1)).figure.axes for a in ax.texts]
    red = [a.get_text() for a in notes if a.get_color() == style.ALARM]
    assert red and all("not to be trusted" in words for words in red)
    bars = kv.draw_bars({"a": 1, "b": 2}, title="t", highlight=["b"]).figure.axes[1].patches
    assert [bool(bar.get_hatch()) for bar in bars] == [False, True]
    assert all(style.ALARM != style.fill(role, "new") for role in ROLES)


def test_how_far_an_entry_moved_is_a_scale_that_every_eye_sees():
    change = np.array([[0, 2e-3, 0.01, 0.05, 0.2, 0.9]])
    cells = kv.draw_column(change, title="t").figure.axes[1].collections
    by_place = {a.places[0][1]: to_hex(a.get_facecolor()[0]) for a in cells}
    scale = [by_place[place] for place in range(6)]
    assert min(distance(a, b) for a, b in combinations(scale, 2)) > APART
    assert distance(scale[0], style.PAPER) > 5
    assert [style.luminance(c) for c in scale] == sorted(map(style.luminance, scale), reverse=True)


def test_no_two_curves_share_a_dash_or_a_marker():
    assert len({str(dash) for _, dash, _ in style.SERIES}) == len(style.SERIES)
    assert len({marker for *_, marker in style.SERIES}) == len(style.SERIES)


# --- text -----------------------------------------------------------------------------------

STRIP = Run([plain(n, step=n - 7) for n in range(7, 10)])
SHARES = np.tril(np.full((11, 11), 1 / 11))
SHARES[10] = [0.04, 0.15, 0.2, 0.25, 0.31, 0.37, 0.45, 0.6, 0.8, 0.95, 1]
WRITTEN = {
    "without a cache": lambda: kv.draw_step(plain(11, shares=SHARES), span=13),
    "window": lambda: kv.draw_step(window(), span=9),
    "doubtful": lambda: kv.draw_step(chunk(gap=0.2)),
    "both": lambda: kv.draw_side_by_side(padded(), static()),
    "earlier": lambda: kv.draw_step(square(["earlier"] * 6 + ["new"], [6], ["new"])),
    "strip": lambda: kv.draw_filmstrip(STRIP, steps=range(3), layer=13, head=8),
    "column": lambda: kv.draw_column(np.eye(5), tokens=list("abcde"), title="t"),
    "curves": lambda: kv.draw_curves(
        [0, 1], {n: [i, i + 1] for i, n in enumerate("abcde")}, title="t", levels={"gate": 3}
    ),
    "bars": lambda: kv.draw_bars(
        {"a": 1, "b": 2}, title="t", highlight=["b"], levels={"gate": 1.5}
    ),
}


@pytest.mark.parametrize("name", WRITTEN)
def test_every_text_has_a_contrast_of_four_and_a_half_where_it_is_written(name):
    check_contrast(WRITTEN[name]().figure)


def check_contrast(figure):
    """Check every text against the background under its pixels."""
    words = [a for ax in figure.axes for a in ax.texts if a.get_text()]
    for each in words:
        each.set_visible(False)
    canvas = FigureCanvasAgg(figure)
    canvas.draw()
    ground = np.asarray(canvas.buffer_rgba())[..., :3].copy()
    alone = RendererAgg(ground.shape[1], ground.shape[0], figure.dpi)
    for each in words:
        each.set_visible(True)
        alone.clear()
        each.draw(alone)
        inked = np.asarray(alone.buffer_rgba())[..., 3] > 128
        under = {tuple(color) for color in ground[inked].tolist()}
        assert under, each.get_text()
        worst = min(style.contrast(each.get_color(), np.array(color) / 255) for color in under)
        assert worst >= 4.5, (each.get_text(), each.get_color(), worst)
