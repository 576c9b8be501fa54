"""`Run.choose_head`: the head a stepper starts with, chosen from the recording alone."""

import numpy as np
import pytest
import torch
from small import cached_loop, llama, plain_loop, prompt

import kvviz as kv


def recorded(loop, ids, n=4, **options):
    model = llama()
    with kv.record(model, **options) as run:
        loop(model, ids, n)
    return run


@pytest.fixture
def run():
    return recorded(cached_loop, prompt(6))


def look_at(run, layer, head, column):
    """Make the newest row of each step put most of its attention on one column."""
    for step in run:
        weights = step.attention[layer]
        weights[:, head, -1] = 0.1 / (weights.shape[-1] - 1)
        weights[:, head, -1, column if column >= 0 else weights.shape[-1] + column] = 0.9


def test_it_is_the_head_that_attends_most_to_one_token_further_back(run):
    look_at(run, 1, 4, 2)
    assert run.choose_head() == (1, 4)


@pytest.mark.parametrize("column", [0, -1, -2])
def test_the_first_token_the_own_and_the_one_before_do_not_count(run, column):
    before = run.choose_head()
    layer, head = next((n, h) for n in range(3) for h in range(6) if (n, h) != before)
    look_at(run, layer, head, column)
    assert run.choose_head() == before


def test_of_equal_heads_it_is_the_first(run):
    for layer, head in ((2, 1), (1, 5), (1, 3)):
        look_at(run, layer, head, 2)
    assert run.choose_head() == (1, 3)
    assert run.choose_head(layers=[2]) == (2, 1)


def test_with_and_without_a_cache_it_is_the_same():
    assert recorded(cached_loop, prompt(6)).choose_head() == (
        recorded(plain_loop, prompt(6)).choose_head()
    )


def test_padding_is_not_the_first_token():
    ids, mask = prompt(7), torch.ones(1, 7, dtype=torch.long)
    mask[:, :3] = 0
    model = llama()
    with kv.record(model) as run, torch.no_grad():
        model(ids, attention_mask=mask)
    before = run.choose_head()
    other = (0, 0) if before != (0, 0) else (0, 1)
    look_at(run, *other, 3)  # the first real token
    assert run.choose_head() == before


def test_a_short_or_empty_recording():
    assert recorded(cached_loop, prompt(1), n=1).choose_head() == (0, 0)
    with pytest.raises(ValueError, match="kept attention for at least one"):
        recorded(cached_loop, prompt(4), keep=()).choose_head()
    with pytest.raises(ValueError, match="kept attention for at least one"):
        recorded(cached_loop, prompt(4), layers=[1]).choose_head(layers=[2])
    with kv.record(llama()) as empty:
        pass
    with pytest.raises(ValueError, match="kept attention for at least one"):
        empty.choose_head()


def test_a_saved_recording_gives_the_same(run, tmp_path):
    assert kv.Run.load(run.save(tmp_path / "run.npz")).choose_head() == run.choose_head()


def test_numbers_that_are_none_do_not_count(run):
    look_at(run, 1, 4, 2)
    run[2].attention[2][:] = np.nan
    assert run.choose_head() == (1, 4)
