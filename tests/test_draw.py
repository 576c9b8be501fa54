"""Every mark is where the data says, and looks the way its role and state say."""

import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from squares import (
    TOKENS,
    chunk,
    decode,
    guesses,
    keys_in_front,
    padded,
    plain,
    prefill,
    square,
    static,
    weights,
    window,
)

from kvviz.drawing import fonts, labels, legend, marks, style
from kvviz.drawing import square_drawing as drawing
from kvviz.drawing.marks import find_cells
from kvviz.drawing.sentences import percent

ROLES = ("keys", "values", "queries", "outputs")


def axes(span=7, cell=33.0):
    """An Axes with room for `span` columns of `cell` pixels."""
    figure = Figure(((span + 8) * cell / 96, (span + 8) * cell / 96), dpi=96)
    ax = figure.add_axes((0, 0, 1, 1))
    drawing.set_frame(ax, span, left=4, right=4, top=4, bottom=4)
    return ax


def all_of(ax, drawn, span=None):
    span = span or drawn.n_columns
    return (
        drawing.draw_attention(ax, drawn)
        + drawing.draw_keys_and_values(ax, drawn, span=span)
        + drawing.draw_queries_and_outputs(ax, drawn, span=span)
        + labels.draw_labels(ax, drawn)
    )


def drawn_cells(drawn, span=None):
    ax = axes(span or drawn.n_columns)
    return find_cells(all_of(ax, drawn, span=span))


def corners(artists):
    """{(role, place): its corners in cells}."""
    return {
        (a.role, place): path.vertices[:4].round(6).tolist()
        for a in artists
        if isinstance(a, marks.Cells)
        for place, path in zip(a.places, a.get_paths(), strict=True)
    }


def words(artists):
    return {a.get_gid(): a.get_text() for a in artists if hasattr(a, "get_text")}


def edge(cells, role):
    return [state for (r, _), state in sorted(cells.items(), key=str) if r == role]


def attention(cells, state):
    return {p for (role, p), s in cells.items() if role == "attention" and s == state}


def below(n, rows=None):
    return {(p, j) for p in (range(n) if rows is None else rows) for j in range(p + 1)}


def test_without_a_cache_the_lower_triangle_is_inked_and_the_upper_hatched():
    cells = drawn_cells(plain())
    for role in ROLES:
        assert edge(cells, role) == ["recomputed"] * 6 + ["new"]
    assert attention(cells, "ink") == below(7)
    assert attention(cells, "masked") == {(p, j) for p in range(7) for j in range(p + 1, 7)}
    assert attention(cells, "not computed") == set()


def test_with_the_cache_one_row_is_inked_and_the_triangle_above_is_not_computed():
    cells = drawn_cells(decode())
    assert edge(cells, "keys") == edge(cells, "values") == ["read"] * 6 + ["new"]
    assert edge(cells, "queries") == edge(cells, "outputs") == ["new"]
    assert ("queries", 6) in cells
    assert attention(cells, "ink") == below(7, [6])
    assert attention(cells, "not computed") == below(6)
    assert attention(cells, "masked") == set()


def test_prefill_with_the_cache_is_the_whole_square_and_all_new():
    cells = drawn_cells(prefill())
    assert {cells[role, place] for role in ROLES for place in range(7)} == {"new"}
    assert attention(cells, "ink") == below(7)


def test_a_chunk_of_three_on_four_held_is_three_rows_with_three_masked_cells():
    cells = drawn_cells(chunk())
    assert attention(cells, "ink") == below(7, [4, 5, 6])
    assert attention(cells, "masked") == {(4, 5), (4, 6), (5, 6)}
    assert attention(cells, "not computed") == below(4)
    assert sorted(p for role, p in cells if role == "outputs") == [4, 5, 6]


def test_cropped_cells_are_hollow_and_struck_out_on_all_four_edges():
    ax, drawn = axes(), guesses(7, held=3, cropped=2)
    artists = all_of(ax, drawn)
    cells = find_cells(artists)
    for role in ROLES:
        assert edge(cells, role)[-4:] == ["new"] * 2 + ["cropped"] * 2
        hollow = next(a for a in artists if a.get_gid() == f"{role}:cropped")
        assert to_hex(hollow.get_facecolor()[0]) == style.PAPER
        assert to_hex(hollow.get_edgecolor()[0]) == style.ROLES[role]
        (lines,) = (a for a in artists if a.get_gid() == f"{role}:cropped:mark")
        boxes = [corners(artists)[role, place] for place in (5, 6)]
        for line, box in zip(lines.get_segments(), boxes, strict=True):
            (left, top), (right, bottom) = np.min(box, 0), np.max(box, 0)
            assert (left, top) < tuple(line.min(0)) and tuple(line.max(0)) < (right, bottom)
            assert np.ptp(line, 0).min() > 0.5, "from corner to corner"
    assert attention(cells, "ink") == below(7, range(3, 7)), "they were computed"


def test_labels_of_cropped_tokens_are_struck_through_and_no_others():
    def strike(drawn, cell):
        ax = axes(drawn.n_columns, cell)
        artists = labels.draw_labels(ax, drawn)
        FigureCanvasAgg(ax.figure).draw()
        boxes = {
            a.get_gid(): ax.transData.inverted().transform(a.get_window_extent())
            for a in artists
            if hasattr(a, "get_text")
        }
        found = set()
        for lines in (a for a in artists if a.get_gid() == "struck out"):
            for line in lines.get_segments():
                x, y = line.mean(0)
                found |= {
                    gid
                    for gid, ((x0, y0), (x1, y1)) in boxes.items()
                    if x0 < x < x1 and y1 < y < y0
                }
        return found

    for cell in (9, 14, 33):
        struck = strike(guesses(7, held=3, cropped=2), cell)
        assert struck == {"column:5", "column:6", "row:5", "row:6"}
        assert strike(chunk(), cell) == set()


def test_ink_of_cropped_rows_is_paler_and_the_share_in_it_is_still_read():
    shares = np.tile(np.eye(7)[0], (7, 1))
    drawn = guesses(7, held=3, cropped=2, shares=shares)
    artists = drawing.draw_computed(axes(), drawn)
    ink = next(a for a in artists if a.get_gid() == "attention:ink")
    colors = dict(zip(ink.places, ink.get_facecolor()[:, :3], strict=True))
    full = style.ink(1.0)
    np.testing.assert_allclose(colors[4, 0], full)
    np.testing.assert_allclose(colors[5, 0], 1 - style.VEILED * (1 - full))
    number = next(a for a in artists if a.get_gid() == "number:6:0")
    assert style.contrast(number.get_color(), colors[6, 0]) >= 4.5


def test_columns_out_of_the_window_are_crossed_out_and_not_attended():
    cells = drawn_cells(window())
    assert edge(cells, "keys") == ["dropped"] * 4 + ["read"] * 2 + ["new"]
    assert attention(cells, "ink") == {(6, 4), (6, 5), (6, 6)}
    assert attention(cells, "not computed") == below(6)


def test_a_row_that_was_computed_is_never_drawn_as_not_computed():
    drawn = square(["dropped"] * 2 + ["new"] * 3, range(1, 5), ["new"] * 4)
    by_state = {
        a.state: a.places for a in drawing.draw_attention(axes(5), drawn) if hasattr(a, "role")
    }
    assert by_state["not computed"] == ((0, 0),)
    assert {p for p, _ in by_state["ink"]} == {1, 2, 3, 4}


def test_empty_slots_of_a_static_cache_are_outlined_and_hold_nothing():
    ax = axes(13)
    artists = all_of(ax, static())
    cells = find_cells(artists)
    assert [cells["keys", j] for j in range(13)] == ["read"] * 10 + ["new"] + ["empty"] * 2
    assert all(j < 11 for role, place in cells if role == "attention" for j in [place[1]])
    assert "column:11" not in words(artists)
    outlined = next(a for a in artists if a.get_gid() == "keys:empty")
    assert outlined.get_linewidth()[0] > 0


def test_keys_and_values_are_drawn_each_in_their_own_order():
    drawn = keys_in_front(7)
    cells = drawn_cells(drawn)
    assert edge(cells, "keys") == ["new"] + ["read"] * 6
    assert edge(cells, "values") == ["read"] * 6 + ["new"]
    assert attention(cells, "ink") == below(7, [6])
    assert {p for p, _ in attention(cells, "not computed")} == set(range(6))
    ax = axes()
    over, under = labels.draw_labels(ax, drawn), labels.draw_value_labels(ax, drawn, span=7)
    assert words(over)["column:0"] == words(over)["row:6"] == words(under)["value:6"] == "that"
    assert [words(under)[f"value:{j}"] for j in range(7)] == [t.strip() for t in TOKENS[:7]]
    FigureCanvasAgg(ax.figure).draw()
    for j, label in enumerate(under):  # each ends under the middle of its own value
        middle = ax.transData.transform((j + 0.5, 0))[0]
        assert abs(label.get_window_extent().x1 - middle) < 8


def test_values_in_the_usual_order_have_no_labels():
    assert labels.draw_value_labels(axes(), decode(), span=7) == []
    drawn = decode(7, value_tokens=(*TOKENS[:6], "X"), value_states=decode().column_states)
    assert list(words(labels.draw_value_labels(axes(), drawn, span=7))) == ["value:6"]


def test_padding_is_blank_in_rows_and_columns():
    cells = drawn_cells(padded())
    assert edge(cells, "queries") == ["pad"] * 2 + ["new"] * 5
    assert attention(cells, "ink") == {(p, j) for p, j in below(7) if p > 1 and j > 1}
    assert all(min(place) > 1 for role, place in cells if role == "attention")


@pytest.mark.parametrize(("make", "rows_change"), [(plain, 0), (decode, 1)])
def test_two_steps_differ_by_one_cell_on_each_horizontal_edge_and_by_one_row(make, rows_change):
    now, then = axes(11), axes(11)
    first = corners(all_of(now, make(7), span=11))
    second = corners(all_of(then, make(8), span=11))
    for role in ("keys", "values"):
        old = {key: at for key, at in first.items() if key[0] == role}
        new = {key: at for key, at in second.items() if key[0] == role}
        assert {key: new[key] for key in old} == old
        assert set(new) - set(old) == {(role, 7)}
    inked = [
        {key for key, state in find_cells(all_of(axes(11), make(n))).items() if state == "ink"}
        for n in (7, 8)
    ]
    row = {("attention", (7, j)) for j in range(8)}
    assert inked[1] - inked[0] == row
    assert len(inked[0] - inked[1]) == 7 * rows_change  # the row of the step before
    for key in set(first) & set(second):
        assert np.allclose(np.mean(first[key], 0), np.mean(second[key], 0))


def test_a_column_and_its_row_stand_at_their_position():
    at = corners(all_of(axes(), plain()))
    for j in range(7):
        for role in ("keys", "values"):
            xs = [x for x, _ in at[role, j]]
            assert j < min(xs) < max(xs) < j + 1
        for role in ("queries", "outputs"):
            ys = [y for _, y in at[role, j]]
            assert j < min(ys) < max(ys) < j + 1
    assert max(y for _, y in at["keys", 0]) < 0 < 7 < min(y for _, y in at["values", 0])
    assert max(x for x, _ in at["queries", 0]) < 0 < 7 < min(x for x, _ in at["outputs", 0])
    (x0, y0), (x1, y1) = at["attention", (5, 2)][0], at["attention", (5, 2)][2]
    assert (int(x0), int(y0), int(x1), int(y1)) == (2, 5, 2, 5)


@pytest.mark.parametrize("make", [plain, decode, prefill, chunk, window, static, padded])
def test_colours_are_those_of_role_state_and_share(make):
    drawn = make()
    for artist in all_of(axes(drawn.n_columns), drawn):
        if not isinstance(artist, marks.Cells) or artist.state in ("masked", "not computed"):
            continue
        colors = [to_hex(color) for color in artist.get_facecolor()]
        if artist.role != "attention":
            assert set(colors) == {style.fill(artist.role, artist.state)}
            continue
        for color, (place, j) in zip(colors, artist.places, strict=True):
            share = drawn.weights[drawn.row_positions.index(place), j]
            assert color == to_hex(style.ink(share))


def test_ink_has_one_scale_for_all_rows():
    light, dark = style.luminance(style.ink(0)), style.luminance(style.ink(1))
    assert light > 0.8
    assert dark < 0.02
    steps = [style.luminance(style.ink(w)) for w in np.linspace(0, 1, 13)]
    assert steps == sorted(steps, reverse=True)


def test_states_differ_by_more_than_hue():
    for role in ROLES:
        grey = [style.luminance(style.fill(role, state)) for state in ("new", "recomputed", "read")]
        assert grey[0] + 0.1 < grey[1] < grey[2] - 0.1
        assert marks.make_mark(role, "recomputed", [0.5], [0.5])
        assert not marks.make_mark(role, "new", [0.5], [0.5])
    for state in ("earlier", "dropped", "pad"):
        assert marks.make_mark("keys", state, [0.5], [0.5])
    assert any(a.get_hatch() for a in drawing.draw_attention(axes(), plain()) if hasattr(a, "role"))


def test_all_text_has_a_contrast_of_four_and_a_half():
    colors = [*style.ROLES.values(), style.TEXT, style.QUIET, style.FAINT, style.ALARM]
    colors += [color for color, *_ in style.SERIES]
    assert min(style.contrast(color, style.PAPER) for color in colors) >= 4.5
    inks = [style.ink(w) for w in np.linspace(0, 1, 101)]
    assert min(style.contrast(style.text_on(ink), ink) for ink in inks) >= 4.5


def test_only_the_newest_rows_large_shares_are_written():
    shares = weights(7)
    shares[6] = [0.02, 0.02, 0, 0, 0, 0.957, 0.003]
    said = words(drawing.draw_attention(axes(), plain(shares=shares)))
    assert said == {"number:6:5": ".96"}
    shares[6] = [0, 0, 0, 1, 0, 0, 0]
    assert words(drawing.draw_attention(axes(), decode(shares=shares))) == {"number:6:3": "1"}


def test_natural_ties_round_the_same_way_on_every_processor():
    assert percent(0.125) == percent(np.nextafter(np.float32(0.125), 0)) == 13
    assert percent(0.9649) == 96


def test_only_the_newest_label_is_bold():
    labels = [a for a in all_of(axes(), plain()) if (a.get_gid() or "").startswith("column:")]
    bold = [a.get_gid() for a in labels if a.get_fontproperties().get_file() == fonts.BOLD]
    assert bold == ["column:6"]
    assert [a.get_text() for a in labels] == [token.strip() for token in TOKENS[:7]]


def test_edges_are_named_in_the_singular_where_there_is_one():
    assert words(all_of(axes(), decode()))["name:queries"] == "query"
    assert words(all_of(axes(), plain()))["name:queries"] == "queries"


def test_a_repeated_token_has_a_column_each_time():
    said = words(all_of(axes(3), decode(3, tokens=["the", " cat", " the"])))
    assert [said[f"column:{j}"] for j in range(3)] == ["the", "cat", "the"]


HOSTILE = {
    "$$": "$$",
    " $a_$ ": "$a_$␣",
    "a{b}_c^2": "a{b}_c^2",
    "\t": r"\t",
    "\n": r"\n",
    "\r": r"\r",
    "\0": r"\0",
    "\x1b[0m": r"\x1b[0m",
    " ": "␣",
    "  two": "␣␣two",
    "é": "é",
    "\u0301": "◌\u0301",
    "שלום": "שלום",
    "\u202eevil": r"\u202eevil",
    "\ufffd": r"\ufffd",
    "<0xF0>": "<0xF0>",
    "<|im_end|>": "<|im_end|>",
    "": "",
}


@pytest.mark.parametrize(
    "token", [*HOSTILE, "你", "😀", "한글", "👩\u200d👩", "𝒜", "ﷺ", "\ud800", "\U0010ffff"]
)
def test_any_token_is_drawn_as_typed_or_written_out_and_nothing_warns(token):
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ax = axes(3)
        drawn = decode(3, tokens=["x", token, token])  # the last one is bold
        said = words(labels.draw_labels(ax, drawn, above=200, room=200))
        FigureCanvasAgg(ax.figure).draw()
    for shown in (said["column:1"], said["column:2"]):
        if token in HOSTILE:
            assert shown == HOSTILE[token]
        assert shown or not token
        assert shown.isprintable()


def test_a_character_no_font_has_is_written_as_its_escape(monkeypatch):
    monkeypatch.setattr(fonts, "_find_fallback", lambda character: None)
    assert fonts.make_label("你")[0] == r"\u4f60"
    assert fonts.make_label("é你")[0] == r"é\u4f60"


def test_a_character_an_installed_font_has_is_drawn_with_that_font():
    word, font = fonts.make_label("𝒜")  # matplotlib's own STIX has it
    assert word == "𝒜"
    assert "STIX" in font.get_file()


def test_long_labels_are_cut_to_their_room():
    word, font = fonts.make_label(" extraordinarily_long_token", width=50)
    assert word.startswith("extra")
    assert word.endswith("…")
    assert fonts.measure(word, font) <= 50


def test_crowded_labels_are_thinned_and_the_newest_stays():
    ax = axes(149, cell=5)
    said = words(labels.draw_labels(ax, plain(149)))
    columns = [gid for gid in said if gid.startswith("column:")]
    assert 50 < len(columns) < 100
    assert "column:148" in columns
    assert "column:147" not in columns


def test_square_without_kept_attention_is_drawn_without_ink():
    cells = drawn_cells(decode(weights=None))
    assert attention(cells, "not kept") == below(7, [6])
    assert attention(cells, "ink") == set()


def test_columns_before_start_are_left_out():
    drawn = plain(11)
    ax = axes(7)
    artists = drawing.draw_attention(ax, drawn, start=4)
    artists += drawing.draw_keys_and_values(ax, drawn, start=4, span=7)
    artists += drawing.draw_queries_and_outputs(ax, drawn, start=4, span=7)
    at = corners(artists)
    assert min(place for role, place in at if role == "keys") == 4
    assert min(place for role, place in at if role == "queries") == 4
    assert at["keys", 4][0][0] == pytest.approx(0, abs=0.1)
    assert at["attention", (10, 4)][0] == pytest.approx([0, 6], abs=0.1)


def test_what_is_still_to_come_has_its_ground():
    assert drawing.draw_later(axes(11), plain(7), span=11)
    assert drawing.draw_later(axes(7), plain(7), span=7) == []
    assert drawing.draw_later(axes(13), static(), span=13), "rows are, slots aren't"


def test_legend_explains_every_state_and_nothing_else():
    figure = Figure((6, 0.5), dpi=96)
    states = {"new", "recomputed", "masked", "ink", "dropped"}
    said = legend.draw_legend(figure.add_axes((0, 0, 1, 1)), states, width=576, lines=2)
    names = {a.get_text() for a in said if hasattr(a, "get_text")}
    assert names == {style.STATES[state] for state in states}
    swatches = {a.get_gid() for a in said if not hasattr(a, "get_text")}
    assert swatches == {f"legend:{state}" for state in states}


def test_columns_from_an_earlier_prompt_are_marked():
    drawn = square(["earlier"] * 3 + ["read"] * 3 + ["new"], [6], ["new"])
    artists = all_of(axes(), drawn)
    assert [find_cells(artists)["keys", j] for j in range(7)] == list(drawn.column_states)
    assert "keys:earlier:mark" in {a.get_gid() for a in artists}


def test_drawing_loads_neither_pyplot_nor_torch():
    code = (
        "import sys, kvviz.drawing.figures, kvviz.drawing.charts, kvviz.drawing.curves;"
        "import kvviz.drawing.grid, kvviz.drawing.flow, kvviz.drawing.numbers;"
        "print([m for m in ('matplotlib.pyplot', 'torch', 'transformers') if m in sys.modules])"
    )
    root = Path(__file__).parents[1]
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=root, check=True, capture_output=True, text=True
    )
    assert done.stdout.strip() == "[]"
