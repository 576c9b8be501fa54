"""Each exercise: stub not done, solution passes, each typical wrong answer gets its own hint."""

import re

import pytest
import small
import torch

from kvviz import exercises
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
    held = step.held_before + step.fed
    return step.fed, held, held - 1


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
        (lambda s: (s.fed, s.fed, s.held_before + s.fed - 1), "what was fed"),
        (lambda s: (s.fed, s.held_before, s.held_before + s.fed - 1), "The new token sees itself"),
        (lambda s: (s.fed, s.held_before + s.fed, s.held_before + s.fed), "the first is 0"),
        (lambda s: (1, s.held_before + s.fed, s.held_before + s.fed - 1), "fed is not 1"),
        (lambda s: s.fed, "three numbers"),
        (lambda s: ("6", "6", "5"), "three numbers"),
        (lambda s: s.feed, "AttributeError in line"),
    ],
)
def test_describe_wrong(runs, wrong, hint):
    feedback = exercises.describe(wrong, *runs)
    assert feedback.state == "not right yet" and hint in feedback.says, feedback.says


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
    assert feedback.passed and "23,900" in feedback.says


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda p, n: sum(p + k for k in range(n + 1)), "gave 24120: that is n \\+ 1 steps"),
        (lambda p, n: p * n, "gave 4000: .* The sentence grows"),
        (lambda p, n: p + max(n, 1) - 1 if n else 0, "with a store"),
        (lambda p, n: 23_900, "by hand"),
        (lambda p, n: p / 0, "ZeroDivisionError in line"),
        (lambda p: p, "TypeError in the call"),
    ],
)
def test_positions_wrong(wrong, hint):
    feedback = exercises.positions(wrong)
    assert feedback.state == "not right yet"
    assert re.search(hint, feedback.says), feedback.says


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
    made = [ids]
    for _ in range(n):
        made.append(model(ids, use_cache=False).logits[:, -1:].argmax(-1))
    return torch.cat(made, dim=-1)


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
    assert feedback.passed and "rows 6, 7, 8, 9, ..., 17: 138 positions" in feedback.says


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (forgetful, "held nothing"),
        (one_pass_more, "13 passes for 12 tokens"),
        (only_the_new, "(1, 18): your loop returned (1, 12)"),
        (not_growing, "did not grow"),
        (new_token_in_front, "does not begin with the prompt"),
        (last_eight, "feed the whole sentence at every step"),
        (lowest_score, "differs from place 6 on"),
        (small.cached_loop, "reads from a store"),
        (no_return, "return the longer ids"),
        (never_calls, "never called the model"),
        (changes_the_prompt, "changed the prompt"),
        (raises, "AttributeError in line"),
    ],
)
def test_the_plain_loop_wrong(model, wrong, hint):
    feedback = exercises.plain_loop(wrong, model, small.prompt(6), n=12)
    assert feedback.state == "not right yet" and hint in feedback.says, feedback.says


# -- notebook 02: reusable -----------------------------------------------------------------------


@pytest.fixture(scope="module")
def texts():
    """Entries of a text, with another first token and with another last one; made, not read."""
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
        (lambda a, b: torch.ones(5, 7), "layer 0, place 0 may be used"),
        (lambda a, b: close_enough(a, b) & (torch.arange(7) < 3), "may not|tolerance"),
        (lambda a, b: (a - b).abs() < 1e-3, r"(5, 7), and returned (5, 7, 11)"),
        (lambda a, b: True, "returned bool"),
    ],
)
def test_reusable_wrong(texts, wrong, hint):
    feedback = exercises.reusable(wrong, *texts)
    assert feedback.state == "not right yet"
    assert any(part in feedback.says for part in hint.split("|")), feedback.says


def test_feedback_is_the_same_as_text_and_as_html():
    feedback = exercises.wrong("a < b\nand c")
    assert repr(feedback) == "✗ not right yet: a < b\nand c"
    assert "a &lt; b<br>and c" in feedback._repr_html_()
