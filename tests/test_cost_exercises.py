"""Notebooks 07 and 08: stub not done, solution passes, each typical wrong answer has its hint."""

import itertools

import pytest
import small

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


def one_more_token(config, tokens, batch, size):
    return price(config, tokens + 1, batch, size)


def test_a_price_without_lines_is_not_done_yet():
    assert exercises.price(stub).state == "not done yet"


def test_the_right_price_passes():
    feedback = exercises.price(price)
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
        (14.9, "Decode reads all weights for one token: 7 tokens take about 7 steps"),
        (61, "With a cache one row is computed a step"),
        (29_000, "those are milliseconds"),
        (0, "a number above zero, and gave 0"),
        ("long", "a number above zero, and gave 'long'"),
    ],
)
def test_each_wrong_prediction_has_its_own_hint(asked, seconds, hint):
    feedback = exercises.prediction(lambda p, n: seconds, *asked, clock=ticks())
    assert feedback.state == "not right yet"
    assert hint in feedback.says


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
    assert fed == [5, 1, 1, 1, 1, 1, 1]
    exercises.prediction(lambda p, n: 30, model, ids, n + 1, clock=ticks())
    assert len(fed) == 7 + 8
