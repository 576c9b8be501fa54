"""Notebook 14's second exercise: right in any style, and each way to go wrong has its message."""

import copy
import os

import pytest
import small
import torch

from kvviz import exercises

IDS = small.prompt(9)


@pytest.fixture(scope="module")
def model():
    return small.llama()


def count_common(held, new):
    pairs = enumerate(zip(held, new, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(held), len(new)))


def answer(count, feed=lambda ids, n: ids[:, n:], crop=None, run=None):
    """A function for the check: `count(held, new)` tokens stay, and `feed(ids, n)` is fed."""

    def next_turn(model, cache, held, ids):
        n = count(held, ids[0].tolist())
        if crop is not None:
            crop(cache, held, n)
        elif len(held) > n:
            cache.crop(n - len(held))
        if run is not None:
            return run(model, cache, feed(ids, n))
        return model(feed(ids, n), cache=cache).logits[:, -1]

    return next_turn


def longest(held, new):
    return min(count_common(held, new), len(new) - 1)


def by_prefix(model, cache, held, ids):
    new = ids[0].tolist()
    n = len(os.path.commonprefix([held, new[:-1]]))
    cache.crop(n - cache.get_seq_length())
    return model(ids[:, n:], cache=cache)


def in_pieces(model, cache, fed):
    for token in fed.split(1, dim=1):
        out = model(token, cache=cache)
    return out


@pytest.mark.parametrize("function", [answer(longest), by_prefix, answer(longest, run=in_pieces)])
def test_right_answers_pass(model, function):
    feedback = exercises.next_turn(function, model, IDS)
    assert feedback.passed, feedback
    assert feedback.message == (
        "3, 5, 9, 8, 1, 1 rows for the six texts, no more than needed, and each time the cache "
        "holds the new text and nothing else"
    )
    assert feedback.picture.sentence and not feedback.hints


@pytest.mark.parametrize("kind", [small.gpt2, small.deepseek_v3])
def test_right_on_other_models_and_on_equal_tokens(kind):
    assert exercises.next_turn(answer(longest), kind(), IDS[:, :6]).passed
    assert exercises.next_turn(answer(longest), kind(), torch.full((1, 7), 9)).passed


def slice_by_count(cache, held, n):
    out = len(held) - n
    for layer in cache.layers:
        layer.keys, layer.values = layer.keys[..., :-out, :], layer.values[..., :-out, :]


def from_zero(model, cache, fed):
    return model(fed, cache=cache, position_ids=torch.arange(fed.shape[1])[None])


def on_a_copy(model, cache, fed):
    return model(fed, cache=copy.deepcopy(cache))


def choose_too(model, cache, fed):
    out = model(fed, cache=cache)
    model(out.logits[:, -1:].argmax(-1), cache=cache)
    return out


def start_again(model, cache, held, ids):
    return model(ids, use_cache=True)


def change_ids(model, cache, held, ids):
    out = by_prefix(model, cache, held, ids)
    ids[0, 0] += 1
    return out


WRONG = {
    "starts again": (start_again, "the text goes on: you started again: 9 rows were computed, and"),
    "an empty slice": (
        answer(longest, crop=slice_by_count),
        "the text goes on: you fed 3 tokens and the cache held nothing. Nothing had to be cropped "
        "here; mind that x[:-0] is empty",
    ),
    "a length": (
        answer(lambda held, new: min(len(held), len(new) - 1)),
        "tokens in the middle were edited: both texts begin with 4 tokens, but the cache held 8: "
        "that's a length",
    ),
    "equal tokens counted": (
        answer(lambda held, new: sum(a == b for a, b in zip(held, new, strict=False))),
        "both texts begin with 4 tokens, but the cache held 7: so many tokens are the same",
    ),
    "equal sets": (
        answer(lambda held, new: min(len({*held} & {*new}), len(new) - 1)),
        "both texts begin with 4 tokens, but the cache held 7: so many tokens are the same",
    ),
    "crops nothing": (
        answer(longest, crop=lambda *_: None),
        "tokens in the middle were edited: both texts begin with 4 tokens, but the cache held 9 "
        "when you fed the rest: nothing was cropped",
    ),
    "crop with a length": (
        answer(longest, crop=lambda cache, held, n: cache.crop(n)),
        "the text goes on: cache.crop raised ValueError in line",
    ),
    "feeds nothing": (
        answer(count_common),
        "the end was deleted: you fed no token. The cache already held all 5",
    ),
    "on top of all": (
        answer(count_common, feed=lambda ids, n: ids[:, min(n, ids.shape[1] - 1) :]),
        "the end was deleted: the cache held all 5 tokens already, and you fed 1 token on top",
    ),
    "one too few": (
        answer(lambda held, new: max(0, longest(held, new) - 1)),
        "the text goes on: right, but 1 too few kept: the cache held 5 when you fed 4 tokens, and "
        "6 could have stayed",
    ),
    "one too many": (
        answer(longest, crop=lambda cache, held, n: cache.crop(min(0, n + 1 - len(held)))),
        "both texts begin with 4 tokens, but the cache held 5 after you had cropped it: 1 too many",
    ),
    "one left out": (
        answer(longest, feed=lambda ids, n: ids[:, min(n + 1, ids.shape[1] - 1) :]),
        "the text goes on: the cache held 6 and you fed 2, without",
    ),
    "one again": (
        answer(longest, feed=lambda ids, n: ids[:, max(0, n - 1) :]),
        "the text goes on: the cache held 6 and you fed 4: the first, '32', it held already",
    ),
    "the whole text": (
        answer(longest, feed=lambda ids, n: ids),
        "the text goes on: the cache held 6 and you fed 9: the whole text, on top",
    ),
    "one token alone": (
        answer(longest, feed=lambda ids, n: ids[:, n : n + 1]),
        "the text goes on: the cache held 6 and you fed 1, but not with what comes next",
    ),
    "a token chosen too": (
        answer(longest, run=choose_too),
        "the text goes on: the cache held 6 and you fed 4, more than the new text",
    ),
    "positions from 0": (
        answer(longest, run=from_zero),
        "the text goes on: you fed the right tokens, but layer 0 of the cache differs from a fresh "
        "pass, first at position 6",
    ),
    "a copy": (
        answer(longest, run=on_a_copy),
        "the text goes on: afterwards, the cache you were given holds 6 tokens, and the new text "
        "has 9",
    ),
    "another row": (
        answer(longest, run=lambda model, cache, fed: model(fed, cache=cache).logits[:, 0]),
        "the text goes on: the cache is right, but what you returned isn't the logits",
    ),
    "a token": (
        answer(longest, run=lambda model, cache, fed: model(fed, cache=cache).logits.argmax(-1)),
        "the text goes on: expected the logits of the last row, with 101 numbers, and got (1, 3)",
    ),
    "nothing returned": (
        answer(longest, run=lambda model, cache, fed: model(fed, cache=cache) and None),
        "the text goes on: expected the logits of the last row, with 101 numbers, and got NoneType",
    ),
    "an error": (answer(lambda *_: 1 // 0), "the text goes on: your function raised ZeroDivision"),
    "ids changed": (change_ids, "the text goes on: your function changed the tokens"),
    "no call": (lambda *_: 3, "the text goes on: your function never called the model"),
}


@pytest.mark.parametrize("name", WRONG)
def test_each_mistake_has_its_own_message(model, name):
    function, message = WRONG[name]
    feedback = exercises.next_turn(function, model, IDS)
    assert feedback.state == "not right yet" and message in feedback.message, feedback
    assert len(feedback.hints) == 2


def test_not_written_yet(model):
    def empty(model, cache, held, ids): ...

    def raises(model, cache, held, ids):
        raise NotImplementedError

    for function in (empty, raises, lambda *_: None):
        assert exercises.next_turn(function, model, IDS).state == "not done yet"


def test_what_cannot_be_used_is_refused(model):
    with pytest.raises(ValueError, match="at least 6 tokens, and got 5"):
        exercises.next_turn(by_prefix, model, IDS[:, :5])
    with pytest.raises(ValueError, match="can't always be cropped"):
        exercises.next_turn(by_prefix, small.mistral(), IDS)
    with pytest.raises(ValueError, match=r"one prompt of shape \(1, p\)"):
        exercises.next_turn(by_prefix, model, IDS[0])
    with pytest.raises(TypeError, match="expected a model of transformers"):
        exercises.next_turn(by_prefix, None, IDS)
