"""A square computes all the facts that pictures and sentences need."""

import numpy as np
import pytest
from squares import (
    chunk,
    decode,
    guesses,
    keys_in_front,
    padded,
    plain,
    prefill,
    square,
    static,
    window,
)

from kvviz.drawing.sentences import describe_square, list_numbers


@pytest.mark.parametrize(
    ("drawn", "newest", "real", "visible"),
    [
        (plain(7), 6, range(7), 7),
        (decode(7), 0, range(7), 7),
        (window(), 0, range(7), 3),  # a column that fell out of the window once had a key
        (static(), 0, range(11), 11),
        (padded(), 6, range(2, 7), 5),
        (square(["pad", "pad"], [0, 1], ["pad", "pad"]), None, [], 0),
    ],
)
def test_newest_row_real_columns_and_visible_columns(drawn, newest, real, visible):
    assert drawn.newest == newest
    assert drawn.real_columns() == list(real)
    assert drawn.real_columns(3) == [j for j in real if j >= 3]
    assert drawn.n_visible == visible


def test_the_tally_counts_every_state():
    assert static().tally == {"read": 10, "new": 1, "empty": 2}
    assert static().tally["pad"] == 0
    assert plain(7).n_recomputed == 6


def test_a_row_attends_most_to_one_column_and_to_none_if_all_are_masked():
    shares = np.eye(7)
    shares[6] = [0, 0, 0.6, 0, 0, 0, 0.4]
    drawn = decode(shares=shares)
    assert drawn.most_attended(0) == (2, pytest.approx(0.6))
    masked = np.arange(7)[None] == 2
    assert decode(shares=shares, masked=masked).most_attended(0) == (6, pytest.approx(0.4))
    assert decode(masked=np.ones((1, 7), dtype=bool)).most_attended(0) is None
    assert drawn.share_before(3) == pytest.approx(0.6)
    assert window().share_before(5) == pytest.approx(float(window().weights[0, 4]))
    assert decode(weights=None).share_before(3) is None


def test_every_cell_is_in_one_state():
    for drawn in (plain(), decode(), prefill(), chunk(), window(), padded(), decode(weights=None)):
        found = [
            cell
            for rows, columns in drawn.attention_cells().values()
            for cell in zip(rows, columns, strict=True)
        ]
        assert len(found) == len(set(found))
        dropped = drawn.tally["dropped"]
        n_cells = len(drawn.real_rows) * (len(drawn.real_columns()) - dropped)
        assert len(found) == n_cells


@pytest.mark.parametrize("make", [plain, decode])
def test_the_legend_explains_what_is_in_the_columns_drawn(make):
    assert "to come" in make(7).legend(11)
    assert "to come" not in make(7).legend(7)
    assert make(7).legend(7, start=6) & {"masked", "not computed"} == set()
    assert ("recomputed" in make(7).legend(7)) == ("recomputed" in make(7).column_states)


def test_an_edge_says_which_of_its_cells_were_cropped_and_the_columns_stay_new():
    drawn = guesses(7, held=3, cropped=2)
    assert drawn.n_cropped == 2 and drawn.column_states == ("read",) * 3 + ("new",) * 4
    for role in ("keys", "values"):
        assert drawn.edge_states(role) == ["read"] * 3 + ["new"] * 2 + ["cropped"] * 2
    for role in ("queries", "outputs"):
        assert drawn.edge_states(role) == ["new"] * 2 + ["cropped"] * 2
    assert "cropped" in drawn.legend(7) and "new" in drawn.legend(7)
    assert "new" not in guesses(7, held=5, cropped=2).legend(7)
    again = square(["recomputed"] * 3, range(3), ["recomputed"] * 3, cropped=(2,))
    assert again.edge_states("queries") == ["recomputed"] * 2 + ["cropped"]


@pytest.mark.parametrize("make", [plain, decode, prefill, chunk, window, static, padded])
def test_where_nothing_was_cropped_an_edge_is_as_its_states_say(make):
    drawn = make()
    assert drawn.n_cropped == 0 and "cropped" not in drawn.legend(13)
    assert drawn.edge_states("keys") == list(drawn.column_states)
    assert drawn.edge_states("queries") == list(drawn.row_states)
    assert "cropped" not in describe_square(drawn) + str(list_numbers(drawn))


# --- keys and values in different orders --------------------------------------------------------


def test_values_are_as_the_keys_unless_they_say_otherwise():
    for drawn in (plain(), decode(), static(), padded()):
        assert drawn.states_of("values") == drawn.column_states
        assert not drawn.moved_values and not drawn.has_two_orders
        assert "order" not in describe_square(drawn)


def test_a_new_key_in_front_has_its_value_behind():
    drawn = keys_in_front(7)
    assert drawn.written("keys") == [0] and drawn.written("values") == [6]
    assert drawn.has_two_orders and drawn.moved_values == list(range(7))
    assert drawn.token_of(0) == " that"
    said = describe_square(drawn)
    assert "; 6 keys and 6 values read from the cache, 1 of each written; " in said
    assert "; keys and values are in different orders, the new key in column 0 " in said
    assert "and the new value in column 6; ' that' attends most to " in said
    assert "keys and values in different orders" in list_numbers(drawn)


def test_orders_can_differ_even_if_all_tokens_are_equal():
    same = (" a",) * 7
    drawn = keys_in_front(7).__class__(
        **{**vars(keys_in_front(7)), "tokens": same, "value_tokens": same}
    )
    assert drawn.has_two_orders and not drawn.moved_values


def test_values_that_were_not_written_are_counted_apart_from_the_keys():
    """A cache whose values are from an earlier prompt: the keys' tokens are known, not theirs."""
    unknown = ("?",) * 3 + decode().tokens[3:]
    states = ("earlier",) * 3 + ("read",) * 4
    drawn = decode(7, value_states=states, value_tokens=unknown)
    assert not drawn.has_two_orders and not drawn.moved_values
    said = describe_square(drawn)
    assert "; 6 keys and 7 values read from the cache, 1 key and 0 values written; " in said
    assert "; 3 values from an earlier prompt; " in said
    assert "earlier" in drawn.legend(7)
