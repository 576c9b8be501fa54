"""Notebooks 07 and 08: stub not done, solution passes, each typical wrong answer has its hint."""

import itertools

import numpy as np
import pytest
import small
import torch

from kvviz import exercises


def stub(*_): ...


def raises(*_):
    raise ZeroDivisionError("nothing here")


# -- 07: the price -------------------------------------------------------------------------------


def price(config, tokens, batch, size):
    heads, layers = config.num_key_value_heads, config.num_hidden_layers
    return 2 * layers * heads * config.head_dim * tokens * batch * size


def query_heads(config, tokens, batch, size):
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    return 2 * layers * heads * config.head_dim * tokens * batch * size


def keys_alone(*case):
    return price(*case) / 2


def narrow_heads(config, tokens, batch, size):
    return (
        price(config, tokens, batch, size)
        * config.hidden_size
        // (config.num_attention_heads * config.head_dim)
    )


def one_layer(config, *case):
    return price(config, *case) // config.num_hidden_layers


def one_conversation(config, tokens, batch, size):
    return price(config, tokens, 1, size)


def bits(*case):
    return 8 * price(*case)


def hidden_size(config, tokens, batch, size):
    return 2 * config.num_hidden_layers * config.hidden_size * tokens * batch * size


def numbers(config, tokens, batch, size):
    return price(config, tokens, batch, 1)


def float32_alone(config, tokens, batch, size):
    return price(config, tokens, batch, 4)


def mebibytes(*case):
    return price(*case) / 2**20


def a_slip(config, tokens, batch, size):
    return 2 * config.num_hidden_layers * config.head_dim**tokens


def tampers(config, tokens, batch, size):
    config.num_key_value_heads = 6
    return price(config, tokens, batch, size)


def one_more_token(config, tokens, batch, size):
    return price(config, tokens + 1, batch, size)


def test_a_price_without_lines_is_not_done_yet():
    assert exercises.price(stub).state == "not done yet"


@pytest.mark.parametrize("of", [int, float, np.int64, np.array, torch.tensor])
def test_the_right_price_passes_whatever_kind_of_number_it_is(of):
    feedback = exercises.price(lambda *case: of(price(*case)))
    assert feedback.passed and "46,080 bytes a token" in feedback.says


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (query_heads, "count the key/value heads"),
        (keys_alone, "there are keys and there are values"),
        (narrow_heads, "a config says its head_dim"),
        (one_layer, "each layer has keys and values of its own"),
        (one_conversation, "each row of the batch has a store of its own"),
        (bits, "those are bits"),
        (hidden_size, "hidden_size is not what is kept"),
        (numbers, "that counts numbers: each takes `size` bytes"),
        (float32_alone, "right for float32 alone"),
        (mebibytes, "bytes are asked for, not thousands, millions or billions"),
        (a_slip, "SmolLM2 135M, 1 token, batch 1, 4 bytes a number: yours is 0.0833 times"),
        (tampers, "SmolLM2 135M, 1 token, batch 1, 4 bytes a number: yours is 2 times"),
        (one_more_token, "SmolLM2 135M, 1 token, batch 1, 4 bytes a number: yours is 2 times"),
        (raises, "raised ZeroDivisionError"),
        (lambda *_: "a lot", "a number of bytes, and gave 'a lot'"),
        (lambda *_: True, "a number of bytes, and gave True"),
    ],
)
def test_each_wrong_price_has_its_own_hint(answer, hint):
    feedback = exercises.price(answer)
    assert feedback.state == "not right yet"
    assert hint in feedback.says


# -- 08: the prediction --------------------------------------------------------------------------


def ticks():
    """A clock that goes on by 30 seconds each time it is asked."""
    return itertools.count(0, 30).__next__


@pytest.fixture
def asked():
    return small.llama(), small.prompt(5), 7


def test_a_prediction_without_lines_is_not_done_yet(asked):
    assert exercises.prediction(stub, *asked).state == "not done yet"


@pytest.mark.parametrize("seconds", [15, 30, 60])
def test_a_prediction_within_a_factor_of_two_passes(asked, seconds):
    feedback = exercises.prediction(lambda p, n: seconds, *asked, clock=ticks())
    assert feedback.passed, feedback
    assert feedback.says == f"you said {seconds} seconds for 7 tokens, and they took 30: " + (
        "within a factor of two"
    )


@pytest.mark.parametrize(
    ("seconds", "hint"),
    [
        (12 * 30 / 256, "That is the speed of a prompt"),
        (sum(range(5, 12)) * 30 / 256 * 10, "too long"),
        (14.9, "2.0 times too short. What does one step take, and how many?"),
        (0.01, "3000.0 times too short"),
        (61, "2.0 times too long"),
        (29_000, "those are milliseconds"),
        (0.2, "those are tokens a second"),
        (0, "a number above zero, and gave 0"),
        (-3, "a number above zero, and gave -3"),
        (float("inf"), "a number above zero, and gave inf"),
        (10**400, "a number above zero"),
        ("long", "a number above zero, and gave 'long'"),
        (True, "a number above zero, and gave True"),
    ],
)
def test_each_wrong_prediction_has_its_own_hint(asked, seconds, hint):
    feedback = exercises.prediction(lambda p, n: seconds, *asked, clock=ticks())
    assert feedback.state == "not right yet"
    assert hint in feedback.says


def test_every_row_again_at_every_step_is_named(asked):
    model, ids, n = asked
    longer = 200  # of 5 + 7 tokens the plain loop's rows cost less than the steps
    seconds = sum(range(5, 5 + longer)) * 30 / 256
    feedback = exercises.prediction(lambda p, n: seconds, model, ids, longer, clock=ticks())
    assert "That computes every row again at every step" in feedback.says


@pytest.mark.parametrize("of", [np.float32, np.array, torch.tensor])
def test_a_prediction_may_be_any_kind_of_number(asked, of):
    assert exercises.prediction(lambda p, n: of(30.0), *asked, clock=ticks()).passed


def test_a_time_kept_is_said_to_be_kept_and_can_be_taken_anew(asked):
    def told(**options):
        return exercises.prediction(lambda p, n: 1, *asked, clock=ticks(), **options).says

    kept = "(timed before; again=True times it anew)"
    assert [kept in told(), kept in told(), kept in told(again=True)] == [False, True, False]


def test_the_prediction_is_told_how_long_prompt_and_answer_are(asked):
    told = []
    exercises.prediction(lambda *lengths: told.append(lengths) or 30, *asked, clock=ticks())
    assert told == [(5, 7)]


def test_an_answer_is_written_with_a_cache_and_once(asked):
    model, ids, n = asked
    fed = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: fed.append(args[0].shape[1]), with_kwargs=True
    )
    for seconds in (30, 1, 90):
        exercises.prediction(lambda p, n, said=seconds: said, model, ids, n, clock=ticks())
    assert fed == [5, 1, 1, 1, 1, 1, 1, 256]
    exercises.prediction(lambda p, n: 30, model, ids, n + 1, clock=ticks())
    assert len(fed) == 8 + 9
