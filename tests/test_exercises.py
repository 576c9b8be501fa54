"""Each exercise: stub not done, solution passes, each typical wrong answer gets its own hint."""

import re

import pytest
import small
import torch

from kvviz import exercises
from kvviz.exercises.feedback import reject
from kvviz.recording.recorder import record


def stub(*_): ...


def unfinished(*_):
    raise NotImplementedError


# -- notebook 00: describe ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs():
    model, ids = small.llama(), small.prompt(6)
    with record(model, keep=()) as plain:
        small.plain_loop(model, ids, 4)
    with record(model, keep=()) as cached:
        small.cached_loop(model, ids, 4)
    return plain, cached


def described(step):
    visible = step.held_before + step.fed
    return step.fed, visible, visible - 1


def test_describe_needs_a_run_to_try_it_on():
    with pytest.raises(ValueError, match="got no run"):
        exercises.describe(described)


def test_describe_solved(runs):
    assert exercises.describe(lambda step: list(described(step)), *runs).passed
    assert exercises.describe(described, *runs).passed
    assert exercises.describe(stub, *runs).state == "not done yet"


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda s: (s.fed, s.fed, s.held_before + s.fed - 1), "visible, which is the number fed"),
        (lambda s: (s.fed, s.held_before, s.held_before + s.fed - 1), "It sees its own token too"),
        (lambda s: (s.fed, s.held_before + s.fed, s.held_before + s.fed), "count from 0"),
        (lambda s: (s.fed, s.held_before + 1, s.held_before), "counts one of the 6 tokens fed"),
        (lambda s: (s.fed, s.held_before + s.fed, s.held_before), "The newest is the last of them"),
        (lambda s: (1, s.held_before + s.fed, s.held_before + s.fed - 1), "fed isn't 1"),
        (lambda s: s.fed, "three numbers, (fed, visible, position)"),
        (lambda s: ("6", "6", "5"), "three numbers"),
        (lambda s: s.feed, "AttributeError in line"),
    ],
)
def test_describe_wrong(runs, wrong, hint):
    feedback = exercises.describe(wrong, *runs)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message


# -- notebook 01: positions ---------------------------------------------------------------------


def solution(p, n):
    return sum(p + k for k in range(n))


@pytest.mark.parametrize("empty", [stub, unfinished, lambda *_: ...])
def test_an_unsolved_stub_is_not_done_yet(empty):
    assert exercises.positions(empty).state == "not done yet"
    model, ids = small.llama(), small.prompt(5)
    assert exercises.plain_loop(empty, model, ids).state == "not done yet"


def test_positions_solved():
    feedback = exercises.positions(solution)
    assert feedback.passed and "23,900" in feedback.message


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda p, n: sum(p + k for k in range(n + 1)), "returned 24120, which is n \\+ 1 steps"),
        (lambda p, n: p * n, "returned 4000, .* The text grows"),
        (lambda p, n: p + max(n, 1) - 1 if n else 0, "right for a loop with a cache"),
        (lambda p, n: 23_900, "by hand"),
        (lambda p, n: p / 0, "ZeroDivisionError in line"),
        (lambda p: p, "TypeError in the call"),
    ],
)
def test_positions_wrong(wrong, hint):
    feedback = exercises.positions(wrong)
    assert feedback.state == "not right yet"
    assert re.search(hint, feedback.message), feedback.message


# -- notebook 01: the plain loop -----------------------------------------------------------------


def forgetful(model, ids, n):
    newest = ids
    for _ in range(n):
        newest = model(newest, use_cache=False).logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, newest], dim=-1)
    return ids


def one_pass_more(model, ids, n):
    longer = small.plain_loop(model, ids, n)
    model(longer[:, :-1])
    return longer


def only_the_new(model, ids, n):
    return small.plain_loop(model, ids, n)[:, ids.shape[1] :]


def not_growing(model, ids, n):
    tokens = [ids]
    for _ in range(n):
        tokens.append(model(ids, use_cache=False).logits[:, -1:].argmax(-1))
    return torch.cat(tokens, dim=-1)


def new_token_in_front(model, ids, n):
    for _ in range(n):
        newest = model(ids, use_cache=False).logits[:, -1:].argmax(-1)
        ids = torch.cat([newest, ids], dim=-1)
    return ids


def last_eight(model, ids, n):
    for _ in range(n):
        newest = model(ids[:, -8:], use_cache=False).logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, newest], dim=-1)
    return ids


def lowest_score(model, ids, n):
    for _ in range(n):
        newest = model(ids, use_cache=False).logits[:, -1:].argmin(-1)
        ids = torch.cat([ids, newest], dim=-1)
    return ids


def no_return(model, ids, n):
    small.plain_loop(model, ids, n)


def never_calls(model, ids, n):
    return torch.cat([ids, ids[:, :n]], dim=-1)


def changes_the_prompt(model, ids, n):
    longer = small.plain_loop(model, ids, n)
    ids += 1
    return longer


def raises(model, ids, n):
    return model(ids).logit


@pytest.fixture(scope="module")
def model():
    return small.llama()


def test_the_plain_loop_solved(model):
    feedback = exercises.plain_loop(small.plain_loop, model, small.prompt(6), n=12)
    assert feedback.passed and "rows 6, 7, 8, 9, ..., 17: 138 positions" in feedback.message


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (forgetful, "nothing was held"),
        (one_pass_more, "13 passes for 12 tokens"),
        (only_the_new, "(1, 18), but your loop returned (1, 12)"),
        (not_growing, "didn't grow"),
        (new_token_in_front, "doesn't begin with the prompt"),
        (last_eight, "feed the whole text at every step"),
        (lowest_score, "differs from position 6 on"),
        (small.cached_loop, "reads from a cache"),
        (no_return, "return the longer ids"),
        (never_calls, "never called the model"),
        (changes_the_prompt, "changed the prompt"),
        (raises, "AttributeError in line"),
    ],
)
def test_the_plain_loop_wrong(model, wrong, hint):
    feedback = exercises.plain_loop(wrong, model, small.prompt(6), n=12)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message


# -- notebook 02: reusable -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts():
    """Made-up entries of a text, and of the same text with another first or last token."""
    generator = torch.Generator().manual_seed(0)
    base = torch.randn(5, 7, 11, generator=generator)
    first, last = base.clone(), base.clone()
    first[0, 0] += 1
    first[1:] += 1
    last[:, -1] += 1
    return first, base, last


def close_enough(a, b):
    return (a - b).abs().amax(-1) < 1e-3


def test_reusable_solved(texts):
    assert exercises.reusable(close_enough, *texts).passed
    assert exercises.reusable(stub, *texts).state == "not done yet"


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda a, b: (a == b).all(-1), "Allow a small tolerance"),
        (lambda a, b: close_enough(a, b)[0].expand(5, 7), "Look higher up"),
        (lambda a, b: torch.ones(5, 7), "layer 0, position 0 can be reused"),
        (lambda a, b: close_enough(a, b) & (torch.arange(7) < 3), "can't be reused|tolerance"),
        (lambda a, b: (a - b).abs() < 1e-3, r"(5, 7), but got (5, 7, 11)"),
        (lambda a, b: True, "but got bool"),
    ],
)
def test_reusable_wrong(texts, wrong, hint):
    feedback = exercises.reusable(wrong, *texts)
    assert feedback.state == "not right yet"
    assert any(part in feedback.message for part in hint.split("|")), feedback.message


def test_feedback_is_the_same_as_text_and_as_html():
    feedback = reject("a < b\nand c")
    assert repr(feedback) == "✗ not right yet: a < b\nand c"
    assert "a &lt; b<br>and c" in feedback._repr_html_()
