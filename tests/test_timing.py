import time

import pytest

from kvviz.timing import Comparison, compare


def test_ratios_are_taken_round_by_round():
    seconds = {"one": (1.0, 10.0, 1.0), "two": (2.0, 20.0, 9.0)}
    assert Comparison(seconds).ratio("two") == 2.0
    assert Comparison(seconds).median("two") == 9.0
    assert "2.000 x" in repr(Comparison(seconds))


def test_calls_take_turns_and_the_first_round_is_not_counted():
    order = []
    result = compare({"a": lambda: order.append("a"), "b": lambda: order.append("b")}, rounds=2)
    assert sorted(order[:2]) == sorted(order[2:4]) == sorted(order[4:]) == ["a", "b"]
    assert order[2:4] != order[4:]
    assert {len(times) for times in result.seconds.values()} == {2}


def test_a_longer_call_has_a_larger_ratio():
    calls = {"short": lambda: time.sleep(0.002), "long": lambda: time.sleep(0.02)}
    assert compare(calls, rounds=3).ratio("long") > 2


@pytest.mark.parametrize(("names", "rounds"), [("a", 3), ("ab", 0)])
def test_too_little_to_compare_is_refused(names, rounds):
    with pytest.raises(ValueError, match="at least two calls and one round"):
        compare({name: time.time for name in names}, rounds=rounds)
