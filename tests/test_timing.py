import time
from math import comb

import pytest

from kvviz import timing
from kvviz.timing import Comparison, compare


def test_ratios_are_taken_round_by_round():
    seconds = {"one": (1.0, 10.0, 1.0), "two": (2.0, 20.0, 9.0)}
    assert Comparison(seconds).ratio("two") == 2.0
    assert Comparison(seconds).ratio("one", "two") == 0.5
    assert Comparison(seconds).median("two") == 9.0
    assert "2.000 x (2.000 to 9.000)" in repr(Comparison(seconds))


def test_calls_take_turns_and_the_first_round_is_not_counted():
    order = []
    result = compare({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == ["a", "b"]
    assert order[2:4] != order[4:]
    assert {len(times) for times in result.seconds.values()} == {2} == {result.rounds}


def test_warm_up_and_repeats_are_run_as_often_as_asked():
    calls = {"a": 0, "b": 0}

    def called(name):
        calls[name] += 1

    compare({n: lambda n=n: called(n) for n in calls}, rounds=3, warmup=2, repeats=5)
    assert calls == {"a": 25, "b": 25}


def test_a_time_is_that_of_one_call_however_often_it_is_repeated(monkeypatch):
    now = [0.0]

    def spend(seconds):
        now[0] += seconds

    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    calls = {"short": lambda: spend(0.25), "long": lambda: spend(2.0)}
    result = compare(calls, rounds=3, repeats=3, progress=False)
    assert result.seconds == {"short": (0.25,) * 3, "long": (2.0,) * 3}
    assert result.ratio("long") == 8


@pytest.mark.parametrize("rounds", [6, 9, 11, 20])
def test_the_spread_holds_the_median_19_times_out_of_20(rounds):
    cut = timing._trim(rounds)
    outside = [
        sum(comb(rounds, i) for i in range(k + 1)) / 2 ** (rounds - 1) for k in (cut, cut + 1)
    ]
    assert outside[0] <= 0.05 < outside[1]  # as narrow as possible
    ratios = [float(n) for n in range(1, rounds + 1)]
    result = Comparison({"base": (1.0,) * rounds, "other": tuple(reversed(ratios))})
    assert result.spread("other") == (ratios[cut], ratios[-1 - cut])


@pytest.mark.parametrize(
    ("ratios", "says"),
    [
        ([1.2, 1.1, 1.3, 1.2, 1.4, 1.2], "slower"),
        ([0.8, 0.9, 0.7, 0.5, 0.8, 0.9], "faster"),
        ([1.2, 0.9, 1.3, 1.2, 1.4, 1.2], "too noisy to tell"),
        ([1.3, 1.2, 1.3, 1.2, 1.4, 1.2, 1.1, 0.6, 1.5], "slower"),  # one of nine may stray
    ],
)
def test_it_says_when_the_machine_is_too_noisy_to_tell(ratios, says):
    result = Comparison({"base": (2.0,) * len(ratios), "other": tuple(2 * r for r in ratios)})
    assert result.tells("other") == says
    assert repr(result).endswith(says)


def test_it_tells_against_a_factor_too():
    result = Comparison({"base": (1.0,) * 6, "other": (3.0, 3.1, 2.9, 3.2, 3.3, 3.0)})
    found = [result.tells("other", factor=factor) for factor in (2, 3, 4)]
    assert found == ["slower", "too noisy to tell", "faster"]


def test_few_rounds_tell_nothing():
    few = Comparison({"base": (1.0,) * 5, "other": (9.0,) * 5})
    assert few.tells("other") == "too few to tell" and repr(few).endswith("too few to tell")
    assert Comparison({"base": (1.0,) * 6, "other": (9.0,) * 6}).tells("other") == "slower"


@pytest.mark.parametrize(
    "seconds", [{}, {"a": ()}, {"a": (1.0,), "b": (1.0, 2.0)}, {"a": (1.0, 0.0)}]
)
def test_times_that_cannot_be_compared_are_refused(seconds):
    with pytest.raises(
        ValueError,
        match="expected seconds of each call in every round|seconds of 'a': expected a number",
    ):
        Comparison(seconds)


def test_a_name_that_was_not_timed_is_refused():
    result = Comparison({"a": (1.0,) * 6, "b": (2.0,) * 6})
    for ask in (result.median, result.ratio, result.spread, result.tells):
        with pytest.raises(ValueError, match=r"a name that was timed \(a, b\), got 'zzz'"):
            ask("zzz")


@pytest.mark.parametrize(
    ("calls", "options", "says"),
    [
        ([int, int], {}, "expected {name: function}, got list"),
        ({"a": int, "b": 0}, {}, r"f and not f\(\), got 'b': 0"),
        ({1: int, 2: int}, {}, "a name and a function"),
    ],
)
def test_anything_but_functions_is_refused(calls, options, says):
    with pytest.raises(TypeError, match=says):
        compare(calls, **options)


def test_a_single_call_is_refused():
    with pytest.raises(ValueError, match="at least two calls to compare, got 1"):
        compare({"a": time.time})


@pytest.mark.parametrize(
    "odd", [{"warmup": -1}, {"repeats": 0}, {"rounds": 0}, {"rounds": 1.5}, {"repeats": "3"}]
)
def test_no_repeats_and_a_negative_warm_up_are_refused(odd):
    with pytest.raises(ValueError, match="expected a whole number of at least [01], but got"):
        compare({"a": time.time, "b": time.time}, **odd)
