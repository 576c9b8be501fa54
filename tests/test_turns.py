"""Notebook 03's exercise: right in any style, and each way to go wrong has its own message."""

import re

import pytest
import small
import torch

from kvviz import exercises

IDS, MORE = small.prompt(6), small.prompt(4, seed=3)


@pytest.fixture(scope="module")
def model():
    return small.llama()


def answer(model, fed, n, stop, cache=None):
    """One turn: its new tokens (1, up to n), and the cache, which doesn't hold the last of them."""
    out, new = model(fed, cache=cache, use_cache=True), []
    while True:
        new.append(out.logits[:, -1:].argmax(-1))
        if len(new) == n or new[-1].item() == stop:
            return torch.cat(new, dim=1), out.cache
        out = model(new[-1], cache=out.cache, use_cache=True)


def two_turns(feed, *, keep=True, last=None):
    """A function for the check: `feed(ids, one, more)` is what turn two begins with."""

    def function(model, ids, more, n_new, stop):
        one, cache = answer(model, ids, n_new, stop)
        if last is not None:
            cache = last(model, one, more, cache)
        fed = feed(ids, one, more)
        two, _ = answer(model, fed, n_new, stop, cache if keep else None)
        return torch.cat([ids, one, more, two], dim=1)

    return function


def join(*parts):
    return torch.cat(parts, dim=1)


def feed_singly(model, one, more, cache):
    for token in join(one[:, -1:], more[:, :-1]).split(1, dim=1):
        cache = model(token, cache=cache).cache
    return cache


def feed_last(model, one, more, cache):
    return model(one[:, -1:], cache=cache).cache


right = two_turns(lambda ids, one, more: join(one[:, -1:], more))


def with_generate(model, ids, more, n_new, stop):
    rest = dict(max_new_tokens=n_new, do_sample=False, return_dict_in_generate=True)
    out = model.generate(ids, **rest, eos_token_id=stop)
    out = model.generate(join(out.sequences, more), cache=out.cache, **rest, eos_token_id=stop)
    return out.sequences


def by_length(model, ids, more, n_new, stop):
    """Feeds whatever the cache's length says is missing, and slices the text."""
    text, cache = ids, None
    for message in (None, more):
        text = text if message is None else join(text, message)
        for _ in range(n_new):
            held = 0 if cache is None else cache.get_seq_length()
            out = model(text[:, held:], cache=cache, use_cache=True)
            cache, newest = out.cache, out.logits[:, -1:].argmax(-1)
            text = join(text, newest)
            if newest.item() == stop:
                break
    return text[0].tolist()


RIGHT = {
    "the last token with the message": (right, "rows 6, 1, 1, 1, 1, 1, 5, 1, 1, 1, 1, 1"),
    "the library's generate": (with_generate, "rows 6, 1, 1, 1, 1, 1, 5, 1"),
    "by the cache's length, as a list": (by_length, "rows 6, 1, 1, 1, 1, 1, 5, 1"),
    "the last token by itself": (
        two_turns(lambda ids, one, more: more, last=feed_last),
        "though it could go with the message",
    ),
    "one by one": (
        two_turns(lambda ids, one, more: more[:, -1:], last=feed_singly),
        "in pieces, which is right, but one pass would do",
    ),
}


@pytest.mark.parametrize(("function", "says"), RIGHT.values(), ids=RIGHT)
def test_a_right_second_turn_passes_in_any_style(model, function, says):
    feedback = exercises.two_turns(function, model, IDS, MORE)
    assert feedback.passed and says in feedback.message, feedback
    assert ("but one pass" in says) == ("but one pass" in feedback.message)
    assert "rows computed 6, 1, 1, " in feedback.picture.sentence
    assert exercises.two_turns(function, model, IDS, MORE[:, :1], n_new=3).passed


def test_the_librarys_own_loop_is_told_apart(model):
    says = "that's the library's own loop: write yours"
    for function, _ in RIGHT.values():
        message = exercises.two_turns(function, model, IDS, MORE).message
        assert (says in message) == (function is with_generate), message


def test_a_row_that_was_recomputed_is_said_to_be(model):
    def one_back(model, ids, more, n_new, stop):
        one, cache = answer(model, ids, n_new, stop)
        text = join(ids, one, more)
        if cache.get_seq_length() > ids.shape[1]:
            cache.crop(-1)
        two, _ = answer(model, text[:, cache.get_seq_length() :], n_new, stop, cache)
        return join(text, two)

    message = exercises.two_turns(one_back, model, IDS, MORE).message
    assert "1 row was recomputed, after being taken out of the cache" in message, message
    assert "fed only what the cache didn't hold" not in message
    plain = exercises.two_turns(right, model, IDS, MORE).message
    assert "recomputed" not in plain and "fed only what the cache didn't hold" in plain


def test_a_stop_token_in_turn_two_ends_it(model):
    def goes_on(model, ids, more, n_new, stop):
        one, cache = answer(model, ids, n_new, stop)
        two, _ = answer(model, join(one[:, -1:], more), n_new, None, cache)
        return join(ids, one, more, two)

    message = exercises.two_turns(goes_on, model, IDS, MORE).message
    assert re.search(r"turn two chose the stop token, '\d+', and should have ended", message), (
        message
    )
    assert "nothing more" not in message

    def one_more(model, ids, more, n_new, stop):
        one, cache = answer(model, ids, n_new, stop)
        return join(ids, answer(model, join(one[:, -1:], more), n_new + 2, stop, cache)[0])

    message = exercises.two_turns(one_more, model, IDS, MORE).message
    assert "turn two has its n_new tokens and should have ended" in message, message


def stub(model, ids, more, n_new, stop): ...


def unfinished(model, ids, more, n_new, stop):
    raise NotImplementedError


def test_an_unsolved_stub_is_not_done_yet_and_its_hints_are_folded(model):
    for empty in (stub, unfinished, lambda *_: None, lambda *_: ...):
        feedback = exercises.two_turns(empty, model, IDS, MORE)
        assert feedback.state == "not done yet" and len(feedback.hints) == 2
        assert feedback._repr_html_().count("<details>") == 2


def run_again(model, ids, more, n_new, stop):
    answer(model, ids, n_new, stop)
    return right(model, ids, more, n_new, stop)


def plain(model, ids, more, n_new, stop):
    text = small.plain_loop(model, ids, n_new)
    return small.plain_loop(model, join(text, more), n_new)


def cropped(model, ids, more, n_new, stop):
    one, cache = answer(model, ids, n_new, stop)
    cache.crop(ids.shape[1] - cache.get_seq_length())
    two, _ = answer(model, join(one, more), n_new, stop, cache)
    return join(ids, one, more, two)


def shifted(model, ids, more, n_new, stop):
    one, cache = answer(model, ids, n_new, stop)
    fed, held = join(one[:, -1:], more), cache.get_seq_length()
    ahead = torch.arange(held + 1, held + 1 + fed.shape[1])[None]
    model(fed, cache=cache, position_ids=ahead)
    return ids


def without_last(model, ids, more, n_new, stop):
    return right(model, ids, more, n_new, stop)[:, :-1]


def without_message(model, ids, more, n_new, stop):
    text = right(model, ids, more, n_new, stop)
    return join(text[:, : 6 + n_new], text[:, 10 + n_new :]) if stop is None else text


def new_tokens(model, ids, more, n_new, stop):
    return right(model, ids, more, n_new, stop)[:, 6:]


def least_likely(model, ids, more, n_new, stop):
    out = model(ids, use_cache=True)
    model(out.logits[:, -1:].argmin(-1), cache=out.cache)


def forgetful(model, ids, more, n_new, stop):
    newest = model(ids, use_cache=True).logits[:, -1:].argmax(-1)
    model(newest, use_cache=True)


def changes(model, ids, more, n_new, stop):
    text = right(model, ids, more, n_new, stop)
    more.zero_()
    return text


def returns_nothing(*given):
    right(*given)


def off_by(wrong, *, alone=False):
    """The first turn is so many tokens too long or too short."""

    def function(model, ids, more, n_new, stop):
        one, cache = answer(model, ids, n_new + wrong, stop)
        if alone:  # turn one's last token is dropped, though it is returned
            return join(ids, one, more, answer(model, more, n_new, stop, cache)[0])
        two, _ = answer(model, join(one[:, -1:], more), n_new, stop, cache)
        return join(ids, one, more, two)

    return function


def looks_late(model, ids, more, n_new, stop):
    """Feeds the stop token before it stops."""
    one, cache = answer(model, ids, n_new, stop)
    if one[0, -1].item() == stop:
        out = model(one[:, -1:], cache=cache)
        one, cache = join(one, out.logits[:, -1:].argmax(-1)), out.cache
    two, _ = answer(model, join(one[:, -1:], more), n_new, stop, cache)
    return join(ids, one, more, two)


WRONG = {
    "turn one is one too long": (
        off_by(1),
        r"^step 7: turn one has 7 new tokens, expected 6. The prompt's own pass already gives the",
    ),
    "turn one is one too short": (
        off_by(-1),
        r"^step 5: turn one has 5 new tokens, expected 6. The prompt's own pass gives the first",
    ),
    "turn one is one too long, and that one isn't fed": (
        off_by(1, alone=True),
        r"^turn one has 7 new tokens, expected 6. The prompt's own pass already gives the first",
    ),
    "stops one too late": (looks_late, "4 new tokens, expected 3: it ends with the stop token"),
    "the last token forgotten": (
        two_turns(lambda ids, one, more: more),
        r"step 6: the cache held 11 and you fed 4, without turn one's last token, '26'. It was "
        "chosen but never fed",
    ),
    "the last token twice": (
        two_turns(lambda ids, one, more: join(one[:, -1:], more), last=feed_last),
        "step 7: the cache held 12 and you fed 5, '26' among them, which the cache already held",
    ),
    "the whole text again": (
        two_turns(lambda ids, one, more: join(ids, one, more)),
        "step 6: the cache held 11 and you fed 16, the whole text again",
    ),
    "turn one's tokens again": (
        two_turns(lambda ids, one, more: join(one, more)),
        "the cache held 11 and you fed 10, more than the last token and the message",
    ),
    "a fresh cache": (
        two_turns(lambda ids, one, more: join(ids, one, more), keep=False),
        "It's right, but recomputed: 11 of these were in turn one's cache",
    ),
    "a fresh cache, the message alone": (
        two_turns(lambda ids, one, more: more, keep=False),
        "you fed 4 tokens and the cache held nothing, so the model never saw turn one",
    ),
    "turn one again": (run_again, "turn one was run over again"),
    "no cache at all": (plain, "step 1: you fed 7 .* 6 of these were in the cache of the step bef"),
    "cropped and fed again": (cropped, "26 rows were computed for 22 tokens: some were fed again"),
    "no stop": (
        lambda model, ids, more, n_new, stop: right(model, ids, more, n_new, None),
        "Without a stop token, both turns are right. With a stop token .* fed after .* turn one en",
    ),
    "positions one too high": (shifted, "step 6: you fed the right tokens, but the logits differ"),
    "too short": (without_last, "your text has 21 tokens, expected 22"),
    "no message": (without_message, "the message is missing"),
    "new tokens only": (new_tokens, "you returned the new tokens alone"),
    "another token": (least_likely, "What comes next is '91'"),
    "no cache in turn one": (forgetful, "you fed 1 token and the cache held nothing. Pass the ca"),
    "the message changed": (changes, "changed the tokens it was given"),
    "an error": (lambda model, ids, *_: model(ids).logit, "raised AttributeError: .* in line"),
    "two texts": (lambda model, ids, *rest: (right(model, ids, *rest), ids), "in one tensor"),
    "no model": (lambda model, ids, *_: ids, "never called the model"),
    "nothing": (returns_nothing, "your function returned nothing"),
}


@pytest.mark.parametrize(("function", "says"), WRONG.values(), ids=WRONG)
def test_each_way_to_go_wrong_has_its_own_message(model, function, says):
    feedback = exercises.two_turns(function, model, IDS, MORE)
    assert feedback.state == "not right yet" and feedback.hints
    assert re.search(says, feedback.message), feedback.message
    assert (feedback.picture is not None) == ("step " in feedback.message)


def test_bad_input_is_refused(model):
    with pytest.raises(ValueError, match="ids: expected one prompt"):
        exercises.two_turns(right, model, IDS, MORE[0])
    with pytest.raises(ValueError, match="n_new"):
        exercises.two_turns(right, model, IDS, MORE, n_new=0)
    with pytest.raises(TypeError, match="expected a model of transformers"):
        exercises.two_turns(right, "model", IDS, MORE)
