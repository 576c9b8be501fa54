"""A loop that guesses gives the plain cached loop's text, in fewer passes where a text repeats.

The loop is the one in 14's solution. Each text is compared to the letter: in float32, no prompt
here ends in a near tie (the benchmark shows one where there is).
"""

import pytest
import small
import torch
from small import cached_loop, prompt

import kvviz as kv
from benchmarks.guesses import count, generate_with_guesses, keep_the_past, look_up

N_NEW = 12
PROMPTS = [prompt(1), prompt(19, seed=3), prompt(3).repeat(1, 4), torch.full((1, 7), 9)]


@pytest.fixture(scope="module", params=[small.llama, small.gpt2, small.gemma3])
def pair(request):
    """A model, and what the loop calls: where there's a window of 5, its past is kept."""
    model = request.param()
    return model, keep_the_past(model) if request.param is small.gemma3 else model


# --- the guesses ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "k", "guesses"),
    [
        ([1, 2, 3, 4, 1, 2, 3], 2, [4, 1]),  # what followed 2, 3
        ([2, 9, 1, 2, 7, 3, 1, 2], 1, [7]),  # the longer match, not the first
        ([5, 1, 6, 5, 2, 5], 1, [1]),  # of two as long, the first
        ([4, 4, 4, 4], 3, [4, 4]),  # no further than the text goes
        ([1, 2, 3], 4, []),
        ([1, 2, 1], 0, []),
        ([1], 4, []),
    ],
)
def test_the_guesses_are_what_followed_the_last_tokens_before(text, k, guesses):
    assert look_up(text, k) == guesses


# --- the text and the passes ----------------------------------------------------------------


@pytest.mark.parametrize("ids", PROMPTS, ids=lambda ids: f"{ids.shape[1]} tokens")
def test_the_text_is_the_plain_loops_in_no_more_passes(pair, ids):
    model, call = pair
    right = cached_loop(model, ids, N_NEW)
    for k in range(1, 9):
        text, rows = count(model, ids, N_NEW, k, call)
        assert torch.equal(text, right), k
        assert len(rows) <= N_NEW, k
        assert sum(rows) >= ids.shape[1] + N_NEW - 1, k


def test_a_text_that_repeats_takes_fewer_passes(pair):
    model, call = pair
    ids = PROMPTS[-1]
    text, rows = count(model, ids, N_NEW, 4, call)
    assert len(set(text[0, ids.shape[1] :].tolist())) <= 2, "this text doesn't repeat"
    assert len(rows) <= 8


def test_without_guesses_it_is_the_plain_cached_loop(pair):
    model, call = pair
    ids = prompt(6)
    with kv.record(model, keep=()) as plain:
        right = cached_loop(model, ids, N_NEW)
    text, rows = count(model, ids, N_NEW, 0, call)
    assert torch.equal(text, right)
    assert rows == [step.fed for step in plain] == [6] + [1] * (N_NEW - 1)


# --- the library -----------------------------------------------------------------------------


@pytest.mark.parametrize("text", ["Once upon a time", "Water boils at"])
def test_its_prompt_lookup_feeds_the_same_rows(default_model, text):
    """It also guesses in the prompt's own pass, and past the end; here it finds nothing there."""
    model, tokenizer = default_model
    ids = tokenizer(text, return_tensors="pt").input_ids
    ours, rows = count(model, ids, 16, 4)
    ends = dict(min_new_tokens=16, max_new_tokens=16, do_sample=False)
    with kv.record(model, keep=()) as run:
        theirs = model.generate(ids, prompt_lookup_num_tokens=4, **ends)
    assert torch.equal(ours, theirs)
    assert rows == [step.fed for step in run]


# --- what can't be rolled back --------------------------------------------------------------


@torch.no_grad()
def test_past_a_window_the_first_wrong_guess_stops_the_loop_unless_the_past_is_kept():
    model = small.gpt_oss()
    ids = prompt(5).repeat(1, 4)
    with pytest.raises(RuntimeError, match="sliding window size was already reached"):
        generate_with_guesses(model, ids, N_NEW, 4)
    text = generate_with_guesses(keep_the_past(model), ids, N_NEW, 4)
    assert torch.equal(text, cached_loop(model, ids, N_NEW))
