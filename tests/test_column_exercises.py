"""Notebook 10: stub not done, good columns pass, each typical wrong answer has its hint."""

import dataclasses

import pytest
import small
import torch
import torch.nn.functional as F

from kvviz import exercises
from kvviz.exercises import columns


def stub(scores, positions): ...


def recent_and_heavy(scores, positions):
    n = len(scores)
    heavy = scores[:-32].topk(max(0, min(n, 64) - 32)).indices
    return torch.cat([heavy, torch.arange(n - 32, n)])


def window_and_first(scores, positions):
    return (positions > positions[-1] - 63) | (positions == 0)


def window(scores, positions):
    return positions > positions[-1] - 64


def oldest(scores, positions):
    return list(range(64))


def everything(scores, positions):
    return range(len(scores))


@pytest.fixture(scope="module")
def forge():
    forge = columns._Watched.small()
    forge.config = dataclasses.replace(forge.config, max_positions=200)
    return forge


@pytest.fixture(scope="module")
def ids():
    return small.prompt(128)


@pytest.fixture
def judge(forge, ids, monkeypatch):
    """Judge a function on the small random model, whose loss passes if it is below `to_beat`."""

    def judge(function, to_beat=0.0):
        monkeypatch.setattr(columns, "TO_BEAT", to_beat)
        columns.BOARD.reset()
        return columns._judge(function, forge, ids, lambda cache: {"eleven": False, "nine": True})

    yield judge
    columns.BOARD.reset()


def test_a_stub_is_not_done_yet():
    assert exercises.keep_columns(stub, None, None).state == "not done yet"


@pytest.mark.parametrize("function", [recent_and_heavy, window_and_first])
def test_columns_within_the_budget_pass_with_their_loss_and_facts(judge, function):
    feedback = judge(function, to_beat=100.0)
    assert feedback.passed
    assert "at most 64 columns; it knows 1 of 2 facts: nine" in feedback.message
    assert f"{columns.BOARD.best.score:.2f}" in feedback.message
    assert columns.BOARD.best.checks == (("eleven", False), ("nine", True))


def test_who_drops_column_0_is_told_when_and_shown_the_loss(judge):
    feedback = judge(window)
    assert feedback.state == "not right yet"
    assert "You dropped column 0 once 96 tokens were fed" in feedback.message
    assert "column 0 is gone from 96 on" in feedback.picture.sentence


def test_who_drops_the_newest_tokens_is_told(judge):
    assert judge(oldest).message.endswith(
        "You dropped some of the newest four tokens, which had no time to earn a score."
    )


def test_a_loss_that_is_too_high_for_no_such_reason_is_told_what_to_beat(judge):
    message = judge(window_and_first).message
    assert message.endswith("A window and the first column get 0.00.")


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (everything, "with 96 columns in layer 0, your function kept 96. The budget is 64."),
        (lambda s, p: torch.ones(3, dtype=torch.bool), "returned 3 booleans"),
        (lambda s, p: [0, 0, 1], "the same column twice"),
        (lambda s, p: p + 64, "They go from 0 to 63"),
        (lambda s, p: s, "returned torch.float32, (64,)"),
        (lambda s, p: "all", "returned 'all'"),
        (lambda s, p: print(end=""), "returned nothing"),
        (lambda s, p: s[1000], "your function raised IndexError"),
    ],
)
def test_columns_that_cannot_be_kept_are_refused_with_numbers(judge, function, said):
    feedback = judge(function, to_beat=100.0)
    assert feedback.state == "not right yet" and said in feedback.message, feedback
    assert len(columns.BOARD) == 0


@pytest.mark.parametrize(
    "form",
    [
        lambda kept: kept,
        lambda kept: kept.nonzero()[:, 0],
        lambda kept: kept.nonzero()[:, 0].flip(0),
        lambda kept: kept.nonzero()[:, 0].tolist(),
        lambda kept: kept.nonzero()[:, 0] - len(kept),
        lambda kept: kept.numpy(),
    ],
)
def test_columns_in_any_form_are_the_same_columns(judge, form):
    expected = judge(window_and_first, to_beat=100.0).message
    assert judge(lambda s, p: form(window_and_first(s, p)), to_beat=100.0).message == expected


def test_the_first_call_fills_the_cache_and_each_later_one_is_trimmed(forge, ids):
    seen = []

    def note(scores, positions):
        seen.append((len(scores), len(positions), int(positions[-1])))
        return window_and_first(scores, positions)

    reading = columns._read_text(forge, ids, note)
    assert seen[::4] == [(64, 64, 63), (96, 96, 95), (96, 96, 127)]
    assert reading.cache.held == 64 and reading.cache.next_position == 128


def test_until_something_is_dropped_the_loss_is_that_of_one_pass(forge, ids):
    losses = columns._read_text(forge, ids, window).losses
    full = F.cross_entropy(forge(ids)[0, :-1], ids[0, 1:], reduction="none")
    assert torch.allclose(losses[:96], full[:96], atol=1e-4)
    assert not torch.allclose(losses[96:], full[96:], atol=1e-4)
