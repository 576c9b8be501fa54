"""A leaderboard keeps each scored attempt once, best first, and says the same on every machine."""

import functools
import re

import pytest
import torch

import kvviz as kv
from kvviz.exercises.feedback import Feedback, accept, reject, with_hints
from kvviz.exercises.leaderboard import Leaderboard, name_of


def drop_oldest():
    pass


def board(**options):
    made = Leaderboard("loss", **{"to_beat": {"window": 4.24, "first 4": 3.46}, **options})
    made.add(drop_oldest, 4.239, checks={"lamp": False})
    made.add("keep_first", torch.tensor(3.4912), checks={"lamp": True}, remark="64 columns")
    return made


def numbers(made):
    return [attempt.number for attempt in made.standing.rows]


# --- rows -----------------------------------------------------------------------------------


def test_the_best_comes_first_whichever_way_is_better():
    assert numbers(board()) == [2, 1] and board().best.name == "keep_first"
    assert numbers(board(better="higher")) == [1, 2] and board(better="higher").best.number == 1
    assert Leaderboard("loss").best is None


def test_scores_that_look_alike_stand_in_the_order_they_came_in():
    made = Leaderboard("loss", digits=1)
    for name, score in (("a", 3.51), ("b", 3.49), ("c", 3.5)):
        made.add(name, score)
    assert numbers(made) == [1, 2, 3]


@pytest.mark.parametrize("again", [3.4912, 3.4888, torch.tensor(3.49)])
def test_the_same_attempt_again_is_no_new_row_but_the_newest_once_more(again):
    made = board()
    made.add("other", 9)
    assert made.standing.newest == 3
    made.add("keep_first", again, checks={"lamp": True})
    assert len(made) == 3 and made.standing.newest == 2


@pytest.mark.parametrize(
    ("who", "score", "lamp"),
    [("keep_first", 3.51, True), ("keep", 3.49, True), ("keep_first", 3.49, False)],
)
def test_another_name_score_or_check_is_a_new_row(who, score, lamp):
    made = board()
    made.add(who, score, checks={"lamp": lamp})
    assert len(made) == 3 and made.standing.newest == 3


@pytest.mark.parametrize("score", [None, float("nan"), float("inf"), torch.tensor(float("nan"))])
def test_an_attempt_without_a_score_is_no_row(score):
    made = board()
    before = repr(made)
    assert made.add("failed", score) is None
    assert repr(made) == before and len(made) == 2


def test_a_reset_forgets_everything():
    made = board()
    made.reset()
    assert len(made) == 0 and "#" not in repr(made)
    assert made.standing.sentence == repr(Leaderboard("loss")) == "no scored attempt yet"
    assert made.add("a", 1).number == 1


def test_a_standing_that_was_shown_does_not_change_later():
    made = board()
    shown = made.show(accept("ok"))
    before = repr(shown), shown._repr_html_()
    made.add("later", 1)
    assert (repr(shown), shown._repr_html_()) == before


def test_attempts_are_named_after_what_was_handed_in():
    assert name_of(functools.partial(drop_oldest, 3)) == "drop_oldest"
    assert name_of(kv.KVCache(3)) == "KVCache" and name_of("") == "unnamed"
    assert name_of("a\nb") == "a b" and len(name_of("x" * 99)) == 24


# --- text -----------------------------------------------------------------------------------


def test_the_table_is_aligned_with_what_is_to_beat_where_it_belongs():
    assert repr(board()).splitlines() == [
        "   attempt         loss (lower is better)  lamp",
        "   first 4                           3.46        to beat",
        "1  #2 keep_first                     3.49  yes   64 columns, newest",
        "2  #1 drop_oldest                    4.24  no",
        "   window                            4.24        to beat",
    ]


def test_a_check_that_only_some_attempts_have_leaves_a_gap():
    made = board()
    made.add("third", 4, checks={"letter": True})
    lines = repr(made).splitlines()
    assert lines[0].endswith("lamp  letter")
    assert re.search(r"third +4\.00 {8}yes +newest$", lines[3])


@pytest.mark.parametrize(
    ("score", "says"),
    [
        (3.1, "loss 3.10, the best of your 3 attempts; beats window (4.24); beats first 4 (3.46)"),
        (3.46, "the best of your 3 attempts; beats window (4.24); ties with first 4 (3.46)"),
        (4.1, "number 2 of your 3 attempts; beats window (4.24); is behind first 4 (3.46)"),
        (9, "number 3 of your 3 attempts; is behind window (4.24); is behind first 4 (3.46)"),
    ],
)
def test_the_sentence_says_where_the_newest_stands_and_what_it_beats(score, says):
    made = board()
    made.add("mine", score)
    assert made.standing.sentence.endswith(says)


def test_equal_scores_are_a_tie_and_share_a_rank():
    made = board()
    made.add("mine", 3.49)
    assert made.standing.sentence.startswith("loss 3.49, tied for the best of your 3 attempts; ")
    assert [line[0] for line in made.standing.list_lines()[1:]] == ["", "1", "1", "3", ""]
    made.add("last", 4.239)
    assert made.standing.sentence.startswith("loss 4.24, tied for number 3 of your 4 attempts; ")
    made.add("own", 5)
    assert "loss 5.00, number 5 of your 5 attempts; " in made.standing.sentence


def test_higher_is_better_turns_the_comparison_round():
    made = Leaderboard("share", better="higher", digits=0, to_beat={"half": 50})
    made.add("a", 70)
    assert made.standing.sentence == "share 70, your first attempt; beats half (50)"


@pytest.mark.parametrize("noise", [-1e-4, 1e-4])
def test_digits_beyond_those_shown_change_nothing(noise):
    made = board()
    made.add("mine", 3.3 + noise)
    other = board()
    other.add("mine", 3.3)
    shown, expected = made.show(accept("ok")), other.show(accept("ok"))
    assert repr(shown) == repr(expected) and shown._repr_html_() == expected._repr_html_()


def test_a_small_score_below_zero_has_no_minus_once_it_is_rounded():
    made = Leaderboard("gap")
    made.add("a", -0.001)
    assert "0.00" in repr(made) and "−" not in repr(made)


# --- picture --------------------------------------------------------------------------------


def test_the_picture_has_a_bar_for_each_attempt_the_newest_marked_and_lines_to_beat():
    picture = board().standing.draw()
    ax = picture.figure.axes[1]
    bars = {b.get_gid()[4:]: b for b in ax.patches if (b.get_gid() or "").startswith("bar:")}
    assert {name: round(bar.get_width(), 2) for name, bar in bars.items()} == {
        "#2 keep_first": 3.49,
        "#1 drop_oldest": 4.24,
    }
    assert [bool(bar.get_hatch()) for bar in bars.values()] == [True, False]
    levels = {line.get_gid(): line.get_xdata()[0] for line in ax.lines if line.get_gid()}
    assert levels == {"level:window": 4.24, "level:first 4": 3.46}
    assert picture.sentence == (
        "Loss of your attempts (lower is better): #2 keep_first 3.49, #1 drop_oldest 4.24; the "
        "newest: loss 3.49, the best of your 2 attempts; beats window (4.24); is behind first 4 "
        "(3.46)"
    )


def test_of_many_attempts_the_best_and_the_newest_are_drawn():
    made = Leaderboard("loss")
    for i in range(15):
        made.add("try", 3 + i / 10)
    picture = made.standing.draw()
    names = [b.get_gid() for b in picture.figure.axes[1].patches if "bar:" in (b.get_gid() or "")]
    assert names == [f"bar:#{i} try" for i in [*range(1, 11), 15]]
    assert picture.sentence.endswith("; 4 attempts not drawn")


def test_one_bar_alone_is_no_picture():
    made = Leaderboard("loss")
    assert made.standing.draw() is None
    made.add("a", 1)
    assert made.standing.draw() is None
    made.add("b", 2)
    assert made.standing.draw() is not None


def test_the_names_of_levels_stay_inside_the_picture():
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    made = Leaderboard("loss", to_beat={"a name that is long": 4.2, "another": 4.25})
    made.add("an attempt with a name", 3)
    figure = made.standing.draw().figure
    renderer = FigureCanvasAgg(figure).get_renderer()
    boxes = [
        text.get_window_extent(renderer)
        for text in figure.axes[1].texts
        if (text.get_gid() or "").startswith("name:")
    ]
    assert len(boxes) == 2 and all(box.x1 <= figure.bbox.x1 for box in boxes)
    assert not boxes[0].overlaps(boxes[1])


# --- in a check -----------------------------------------------------------------------------


def make_check(made):
    @with_hints("small", "large")
    def forget(function, loss):
        made.add(function, loss, checks={"lamp": loss < 3})
        return made.show(accept("within 64 columns") if loss < 4 else reject("too high"))

    return forget


def test_a_check_shows_its_feedback_with_the_leaderboard_below():
    made = Leaderboard("loss")
    forget = make_check(made)
    first, second = forget(drop_oldest, 5.0), forget(drop_oldest, 3.5)
    assert (first.state, first.hints) == ("not right yet", ("small", "large"))
    assert second.passed and not second.hints and isinstance(second, Feedback)
    assert repr(second).splitlines() == [
        "✓ passed: within 64 columns",
        "loss 3.50, the best of your 2 attempts",
        "   attempt         loss (lower is better)  lamp",
        "1  #2 drop_oldest                    3.50  no    newest",
        "2  #1 drop_oldest                    5.00  no",
    ]
    shown = second._repr_html_()
    order = ["within 64 columns", "the best of your 2", "<table>", "<td><b>#2 drop", "<img alt="]
    assert sorted(order, key=shown.index) == order
    assert "Hint" in first._repr_html_() and "<td><b>#1 drop" in first._repr_html_()


def test_feedback_keeps_its_own_picture_and_without_attempts_looks_as_ever():
    run = kv.draw_bars({"a": 1}, title="own")
    made = Leaderboard("loss")
    feedback = reject("no loss came out", run)
    shown = made.show(feedback)
    assert repr(shown) == repr(feedback) and shown._repr_html_() == feedback._repr_html_()
    made.add("a", 1)
    assert "own: a 1" in made.show(feedback)._repr_html_()


def test_names_are_escaped():
    made = Leaderboard("loss <x>", to_beat={"<b>": 1})
    made.add("<script>", 2, checks={"<i>": True}, remark="<u>")
    shown = made.show(accept("ok"))._repr_html_()
    assert not re.search("<(x|script|i|u)>", shown) and "&lt;u&gt;" in shown


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Leaderboard("a", better="more"), "better: expected 'lower' or 'higher', but"),
        (lambda: Leaderboard("a", digits=1.5), "digits: expected a whole number"),
        (lambda: Leaderboard("a", to_beat={"x": "3"}), "to_beat, 'x': expected a number, but"),
        (lambda: board().add("a", "3"), "score: expected a number, but got '3'"),
        (lambda: board().add("a", torch.zeros(2)), r"score: .* Tensor of shape \(2,\)"),
        (lambda: board().add("a", 3, checks={"x": "yes"}), "checks, 'x': expected True or False"),
    ],
)
def test_what_is_no_score_and_no_check_is_refused(make, says):
    with pytest.raises(ValueError, match=says):
        make()
