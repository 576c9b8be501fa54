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


def price(config, tokens, batch_size, bytes_per_number):
    heads, layers = config.num_key_value_heads, config.num_hidden_layers
    return 2 * layers * heads * config.head_dim * tokens * batch_size * bytes_per_number


def query_heads(config, tokens, batch_size, bytes_per_number):
    heads, layers = config.num_attention_heads, config.num_hidden_layers
    return 2 * layers * heads * config.head_dim * tokens * batch_size * bytes_per_number


def keys_alone(*case):
    return price(*case) / 2


def narrow_heads(config, tokens, batch_size, bytes_per_number):
    return (
        price(config, tokens, batch_size, bytes_per_number)
        * config.hidden_size
        // (config.num_attention_heads * config.head_dim)
    )


def one_layer(config, *case):
    return price(config, *case) // config.num_hidden_layers


def one_sequence(config, tokens, batch_size, bytes_per_number):
    return price(config, tokens, 1, bytes_per_number)


def bits(*case):
    return 8 * price(*case)


def hidden_size(config, tokens, batch_size, bytes_per_number):
    return (
        2 * config.num_hidden_layers * config.hidden_size * tokens * batch_size * bytes_per_number
    )


def numbers(config, tokens, batch_size, bytes_per_number):
    return price(config, tokens, batch_size, 1)


def float32_alone(config, tokens, batch_size, bytes_per_number):
    return price(config, tokens, batch_size, 4)


def mebibytes(*case):
    return price(*case) / 2**20


def a_slip(config, tokens, batch_size, bytes_per_number):
    return 2 * config.num_hidden_layers * config.head_dim**tokens


def tampers(config, tokens, batch_size, bytes_per_number):
    config.num_key_value_heads = 6
    return price(config, tokens, batch_size, bytes_per_number)


def the_notebooks_own(config, tokens, batch_size, bytes_per_number):
    return 2 * 30 * 3 * 64 * tokens * batch_size * bytes_per_number


def one_more_token(config, tokens, batch_size, bytes_per_number):
    return price(config, tokens + 1, batch_size, bytes_per_number)


FIRST = "SmolLM2 135M, 1 token, batch_size 1, bytes_per_number 4"


def test_a_price_without_lines_is_not_done_yet():
    assert exercises.price(stub).state == "not done yet"


KINDS_OF_NUMBER = [int, float, np.int64, np.array, torch.tensor, lambda n: torch.tensor([n])]


@pytest.mark.parametrize("of", KINDS_OF_NUMBER)
def test_the_right_price_passes_whatever_kind_of_number_it_is(of):
    feedback = exercises.price(lambda *case: of(price(*case)))
    assert feedback.passed and "46,080 bytes per token" in feedback.message


@pytest.mark.parametrize(
    ("answer", "hint"),
    [
        (query_heads, "count the key/value heads"),
        (keys_alone, "there are keys and there are values"),
        (narrow_heads, "the config gives you head_dim"),
        (one_layer, "each layer has its own keys and values"),
        (one_sequence, "with batch_size sequences, each has its own keys and values"),
        (bits, "those are bits"),
        (hidden_size, "the cache doesn't hold hidden_size numbers"),
        (numbers, "that counts numbers: each takes bytes_per_number bytes"),
        (float32_alone, "right for float32 only"),
        (mebibytes, "return bytes, not thousands, millions or billions"),
        (a_slip, f"{FIRST}: your answer is 0.0833 times"),
        (tampers, f"{FIRST}: your answer is 2 times"),
        (the_notebooks_own, "right for this course's model only: read the sizes from config"),
        (lambda *_: 11_520, "your answer is the same for every model: read the sizes from config"),
        (one_more_token, f"{FIRST}: your answer is 2 times"),
        (raises, "raised ZeroDivisionError"),
        (lambda *_: "a lot", "a number of bytes, but returned 'a lot'"),
        (lambda *_: True, "a number of bytes, but returned True"),
        (lambda *_: float("nan"), "a number of bytes, but returned nan"),
        (lambda *_: torch.ones(2), "a number of bytes, but returned Tensor of shape (2,)"),
    ],
)
def test_each_wrong_price_has_its_own_hint(answer, hint):
    feedback = exercises.price(answer)
    assert feedback.state == "not right yet"
    assert hint in feedback.message


# -- 08: the prediction --------------------------------------------------------------------------


def ticks():
    """A clock that advances by 30 seconds each time it is read."""
    return itertools.count(0, 30).__next__


@pytest.fixture(scope="module")
def timed():
    """A model, a prompt and a number of tokens, timed once, with 30 seconds per `ticks()`."""
    return small.llama(), small.prompt(5), 7


@pytest.fixture
def new_request():
    """The same, with a model whose answers haven't been timed yet."""
    return small.llama(), small.prompt(5), 7


def test_a_prediction_without_lines_is_not_done_yet(timed):
    assert exercises.prediction(stub, *timed).state == "not done yet"


@pytest.mark.parametrize("seconds", [15, 30, 60])
def test_a_prediction_within_a_factor_of_two_passes(timed, seconds):
    feedback = exercises.prediction(lambda p, n: seconds, *timed, clock=ticks())
    assert feedback.passed, feedback
    assert feedback.message == f"you said {seconds} seconds for 7 tokens, and they took 30: " + (
        "within a factor of two"
    )


@pytest.mark.parametrize(
    ("seconds", "hint"),
    [
        (12 * 30 / 256, "Prefill's speed for all tokens would give about that"),
        (sum(range(5, 12)) * 30 / 256 * 10, "too high"),
        (14.9, "2.0 times too low. What does one step take, and how many are there?"),
        (0.01, "3000.0 times too low"),
        (61, "2.0 times too high"),
        (29_000, "in milliseconds, that would be right"),
        (0.2, "150.0 times too low. What does one step take, and how many are there? Or are these"),
        (0, "a number above zero, but returned 0"),
        (-3, "a number above zero, but returned -3"),
        (float("inf"), "a number above zero, but returned inf"),
        (10**400, "a number above zero"),
        ("long", "a number above zero, but returned 'long'"),
        (True, "a number above zero, but returned True"),
        (float("nan"), "a number above zero, but returned nan"),
    ],
)
def test_each_wrong_prediction_has_its_own_hint(timed, seconds, hint):
    feedback = exercises.prediction(lambda p, n: seconds, *timed, clock=ticks())
    assert feedback.state == "not right yet"
    assert hint in feedback.message


def test_every_row_recomputed_at_every_step_is_named(timed):
    model, ids, n = timed
    longer = 40  # for 5 + 7 tokens, the plain loop's rows cost less than the steps
    seconds = sum(range(5, 5 + longer)) * 30 / 256
    feedback = exercises.prediction(lambda p, n: seconds, model, ids, longer, clock=ticks())
    assert "Recomputing every row at every step would take about that" in feedback.message


@pytest.mark.parametrize(
    "of", [int, np.float32, np.array, torch.tensor, lambda n: torch.tensor([n])]
)
def test_a_prediction_may_be_any_kind_of_number(timed, of):
    assert exercises.prediction(lambda p, n: of(30.0), *timed, clock=ticks()).passed


def test_a_time_kept_is_said_to_be_kept_and_can_be_taken_again(new_request):
    def message(**options):
        return exercises.prediction(lambda p, n: 1, *new_request, clock=ticks(), **options).message

    kept = "(timed before; again=True times it again)"
    assert [kept in message(), kept in message(), kept in message(again=True)] == [
        False,
        True,
        False,
    ]


def test_a_prediction_is_given_the_lengths_of_prompt_and_answer(timed):
    given = []
    exercises.prediction(lambda *sizes: given.append(sizes) or 30, *timed, clock=ticks())
    assert given == [(5, 7)]


def test_an_answer_is_written_with_a_cache_and_once(new_request):
    model, ids, n = new_request
    fed = []
    model.register_forward_pre_hook(
        lambda _, args, kwargs: fed.append(args[0].shape[1]), with_kwargs=True
    )
    for seconds in (30, 1, 90):
        exercises.prediction(
            lambda p, n, predicted=seconds: predicted, model, ids, n, clock=ticks()
        )
    assert fed == [5, 1, 1, 1, 1, 1, 1, 256]
    exercises.prediction(lambda p, n: 30, model, ids, n + 1, clock=ticks())
    assert len(fed) == 8 + 9


def test_until_an_exercise_is_passed_there_are_two_hints_and_neither_blames(timed):
    unsolved = [exercises.price(stub), exercises.price(keys_alone)]
    unsolved += [exercises.prediction(stub, *timed, clock=ticks())]
    unsolved += [exercises.prediction(lambda p, n: 1, *timed, clock=ticks())]
    for feedback in unsolved:
        small_hint, larger = feedback.hints
        assert len(small_hint) < len(larger)
        assert not any(word in feedback.message for word in ("wrong", "forgot", "should have"))
    passed = [exercises.price(price), exercises.prediction(lambda *_: 30, *timed, clock=ticks())]
    assert [feedback.hints for feedback in passed] == [(), ()]
