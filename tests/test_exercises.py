"""Each exercise: stub not done, solution passes, each typical wrong answer gets its own hint."""

import re
from fractions import Fraction

import numpy as np
import pytest
import small
import torch
from transformers import DynamicCache

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


@pytest.mark.parametrize(
    "form",
    [tuple, list, np.array, torch.tensor, lambda numbers: tuple(map(float, numbers))],
)
def test_describe_solved_in_any_form(runs, form):
    assert exercises.describe(lambda step: form(described(step)), *runs).passed


def test_describe_not_done_yet(runs):
    feedback = exercises.describe(stub, *runs)
    assert feedback.state == "not done yet" and len(feedback.hints) == 2


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda s: (s.fed, s.fed, s.held_before + s.fed - 1), "That's the number fed"),
        (lambda s: (s.fed, s.held_before, s.held_before + s.fed - 1), "leaves out the tokens fed"),
        (lambda s: (s.fed, s.held_before + s.fed, s.held_before + s.fed), "count from 0"),
        (lambda s: (s.fed, s.held_before + 1, s.held_before), "counts one of the 6 tokens fed"),
        (lambda s: (s.fed, s.held_before + s.fed, s.held_before), "The newest is the last of them"),
        (lambda s: (s.fed, s.held_before + s.fed, s.fed - 1), "among the tokens fed"),
        (lambda s: (1, s.held_before + s.fed, s.held_before + s.fed - 1), "you say fed is 1"),
        (lambda s: (s.fed, 3, 3), "fed is right in every step, but at step 0 of the run without"),
        (lambda s: (s.fed, s.visible, 3), "fed and visible are right in every step, but"),
        (lambda s: (s.fed, None, ...), "fed is right in every step, but visible and position are"),
        (lambda s: (s.fed, s.visible, None), "but position is not done yet"),
        (lambda s: (s.fed, 3, None), "but at step 0 of the run without a cache"),
        (lambda s: (None, None, None), "three numbers"),
        (lambda s: (s.fed, s.visible), "but returned (6, 6)"),
        (lambda s: s.fed, "three numbers, (fed, visible, position), but returned 6"),
        (lambda s: ("6", "6", "5"), "three numbers"),
        (lambda s: torch.ones(4, 4), "but returned Tensor"),
        (lambda s: s.feed, "AttributeError in line"),
    ],
)
def test_describe_wrong(runs, wrong, hint):
    feedback = exercises.describe(wrong, *runs)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message
    assert len(feedback.hints) == 2


def only_one_new(step):
    visible = step.held_before + 1 if step.held_before else step.fed
    return step.fed, visible, visible - 1


def from_the_index(step):
    return step.fed, step.held_before + step.fed, step.index + 5


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (only_one_new, "which was fed 3 with 4 held before, you say visible is 5"),
        (from_the_index, "which was fed 4 with 0 held before, you say position is 5"),
    ],
)
def test_describe_is_tried_on_chunks_and_on_another_prompt(runs, wrong, hint):
    feedback = exercises.describe(wrong, *runs)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message
    assert "of another run, in chunks of 4, 3, 1 and 1" in feedback.message
    assert "layer" in feedback.picture.sentence


def test_describe_passes_the_steps_own_answers_with_a_remark(runs):
    own = exercises.describe(lambda s: (s.fed, s.visible, s.position), *runs)
    assert own.passed and "the step's own visible and position" in own.message
    half = exercises.describe(lambda s: (s.fed, s.visible, s.visible - 1), *runs)
    assert half.passed and "the step's own visible: now work" in half.message
    assert "own" not in exercises.describe(described, *runs).message


def test_describe_says_which_of_the_runs_it_means(runs):
    """Step 0 of both runs was fed the same, with nothing held before."""
    for run, name in zip(runs, ["without", "with"], strict=True):
        feedback = exercises.describe(lambda s: (s.fed, 0, 0), run)
        assert f"step 0 of the run {name} a cache" in feedback.message, feedback.message
        assert "step 0, layer" in feedback.picture.sentence


def test_describe_shows_the_step_it_means_and_nothing_for_what_is_missing(runs):
    fed = exercises.describe(lambda s: (s.fed, s.fed, s.visible - 1), *runs)
    assert "step 1" in fed.message and "step 1, layer" in fed.picture.sentence
    assert exercises.describe(lambda s: (s.fed, None, None), *runs).picture is None


# -- notebook 01: share_used --------------------------------------------------------------------


def share(p, n):
    return n / sum(p + k for k in range(n))


@pytest.mark.parametrize("empty", [stub, unfinished, lambda *_: ...])
def test_an_unsolved_stub_is_not_done_yet(empty):
    model, ids = small.llama(), small.prompt(5)
    for feedback in (
        exercises.share_used(empty),
        exercises.score_last_row(empty, model, ids),
    ):
        assert feedback.state == "not done yet" and len(feedback.hints) == 2


@pytest.mark.parametrize(
    "form",
    [float, Fraction, np.float32, torch.tensor, lambda number: round(number, 3 + (number < 0.1))],
)
def test_share_used_solved_in_any_form(form):
    feedback = exercises.share_used(lambda p, n: form(share(p, n)))
    assert feedback.passed and "1 row of logits in 120" in feedback.message


def test_share_used_solved_in_closed_form():
    assert exercises.share_used(lambda p, n: 2 / (2 * p + n - 1)).passed


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda p, n: 100 * share(p, n), "in percent"),
        (lambda p, n: 1 / share(p, n), r"returned 119\.5\. .*upside down"),
        (lambda p, n: sum(1 / (p + k) for k in range(n)) / n, "average of the steps' shares"),
        (lambda p, n: 1 / (p + n - 1), "the last step alone"),
        (lambda p, n: n / (p * n), "the text grows"),
        (lambda p, n: 1 / sum(p + k for k in range(n)), "one row in all"),
        (lambda p, n: n / sum(p + k for k in range(n + 1)), "computes n \\+ 1 steps"),
        (lambda p, n: n / (p + n - 1), "right for a loop with a cache"),
        (lambda p, n: 0.5, "by hand"),
        (lambda p, n: 200 / 23_900, r"share_used\(6, 12\) returned 0\.008368\. .*by hand"),
        (lambda p, n: round(share(p, n), 2), "returned 0.01. Don't round"),
        (lambda p, n: round(share(p, n), 1), "returned 0. Don't round"),
        (lambda p, n: int(1000 * share(p, n)) / 1000, "returned 0.008. Don't round"),
        (lambda p, n: "a lot", "from 0 to 1, but returned 'a lot'"),
        (lambda p, n: p / 0, "ZeroDivisionError in line"),
        (lambda p: p, "TypeError in the call"),
    ],
)
def test_share_used_wrong(wrong, hint):
    feedback = exercises.share_used(wrong)
    assert feedback.state == "not right yet"
    assert re.search(hint, feedback.message), feedback.message


# -- notebook 01: score_last_row ----------------------------------------------------------------


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


@torch.no_grad()
def scores_one(model, ids, n):
    for _ in range(n):
        rows = model.model(ids, use_cache=False).last_hidden_state
        ids = torch.cat([ids, model.lm_head(rows[:, -1:]).argmax(-1)], dim=-1)
    return ids


@torch.no_grad()
def asks_for_one(model, ids, n):
    for _ in range(n):
        logits = model(ids, use_cache=False, logits_to_keep=1).logits
        ids = torch.cat([ids, logits[:, -1].argmax(-1, keepdim=True)], dim=-1)
    return ids


@torch.no_grad()
def layer_by_layer(model, ids, n, cut=2):
    """Call each part of the model by itself; only the last row goes on after layer `cut`."""
    for _ in range(n):
        x, positions = model.model.embed_tokens(ids), torch.arange(ids.shape[1])[None]
        mask = torch.full((ids.shape[1],) * 2, float("-inf")).triu(1)[None, None]
        for number, layer in enumerate(model.model.layers):
            rotation = model.model.rotary_emb(x, positions)
            x = layer(x, position_embeddings=rotation, attention_mask=mask)
            if number >= cut:
                x, positions, mask = x[:, -1:], positions[:, -1:], None
        new = model.lm_head(model.model.norm(x))[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], dim=-1)
    return ids


def cuts_too_early(model, ids, n):
    return layer_by_layer(model, ids, n, cut=0)


def scores_the_first_row(model, ids, n):
    for _ in range(n):
        rows = model.model(ids, use_cache=False).last_hidden_state
        ids = torch.cat([ids, model.lm_head(rows[:, :1]).argmax(-1)], dim=-1)
    return ids


def scores_two_rows(model, ids, n):
    for _ in range(n):
        logits = model(ids, use_cache=False, logits_to_keep=2).logits
        ids = torch.cat([ids, logits[:, -1:].argmax(-1)], dim=-1)
    return ids


def passes_by_the_head(model, ids, n):
    for _ in range(n):
        rows = model.model(ids, use_cache=False).last_hidden_state
        new = (rows[:, -1:] @ model.lm_head.weight.T).argmax(-1)
        ids = torch.cat([ids, new], dim=-1)
    return ids


def lets_generate_do_it(model, ids, n):
    return model.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False, use_cache=False)


def returns_text(model, ids, n):
    return str(scores_one(model, ids, n))


def cached_and_called_in_parts(model, ids, n):
    cache, new = DynamicCache(config=model.config), ids
    for _ in range(n):
        x = model.model(new, cache=cache, use_cache=True).last_hidden_state
        new = model.lm_head(x[:, -1:]).argmax(-1)
        ids = torch.cat([ids, new], dim=-1)
    return ids


@pytest.fixture(scope="module")
def model():
    return small.llama()


@pytest.mark.parametrize(
    "right",
    [scores_one, asks_for_one, layer_by_layer, lambda *given: scores_one(*given).numpy()],
)
def test_score_last_row_solved(model, right):
    before = dict(vars(model))
    feedback = exercises.score_last_row(right, model, small.prompt(6), n=12)
    assert feedback.passed, feedback.message
    assert "6, 7, 8, 9, ..., 17 rows through the layers, 1, 1, 1, 1, ..., 1 scored" in repr(
        feedback
    )
    assert "12 rows of logits instead of 138" in feedback.message
    assert "without generate" not in feedback.message
    hooks = [m._forward_hooks for m in (model.model.embed_tokens, model.lm_head)]
    assert vars(model).keys() == before.keys() and not any(hooks)


@pytest.mark.parametrize("wrong", [forgetful, not_growing, small.cached_loop])
def test_score_last_row_shows_step_1_beside_the_right_one(model, wrong):
    sentence = exercises.score_last_row(wrong, model, small.prompt(6)).picture.sentence
    assert sentence.startswith("yours: step 1") and "expected: " in sentence, sentence


def test_score_last_row_shows_no_picture_where_the_squares_are_right(model):
    assert exercises.score_last_row(small.plain_loop, model, small.prompt(6)).picture is None


def test_score_last_row_shows_the_steps_of_a_right_loop(model):
    sentence = exercises.score_last_row(asks_for_one, model, small.prompt(6), n=3).picture.sentence
    assert "steps 0, 1, 2: rows computed 6, 7, 8" in sentence, sentence
    assert exercises.score_last_row(layer_by_layer, model, small.prompt(6)).picture is None


def test_score_last_row_by_generate_is_right_and_still_to_be_written(model):
    feedback = exercises.score_last_row(lets_generate_do_it, model, small.prompt(6), n=12)
    assert feedback.passed and "write the loop yourself" in feedback.message


@pytest.mark.parametrize("n", [1, 2])
def test_score_last_row_of_a_short_text(model, n):
    assert exercises.score_last_row(scores_one, model, small.prompt(6), n=n).passed


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (small.plain_loop, "every row is scored: 6, 7, 8, 9, ..., 17. That makes 138 rows"),
        (scores_two_rows, "the rows scored are 2, 2, 2, 2, ..., 2"),
        (scores_the_first_row, "differs from position 6 on"),
        (cuts_too_early, "Keep all rows up to the last layer"),
        (passes_by_the_head, "nothing went through model.lm_head"),
        (forgetful, "nothing was held"),
        (one_pass_more, "13 passes for 12 tokens"),
        (only_the_new, "(1, 18), but your loop returned (1, 12)"),
        (not_growing, "didn't grow"),
        (new_token_in_front, "doesn't begin with the prompt"),
        (last_eight, "Feed the whole text at every step"),
        (lowest_score, "differs from position 6 on"),
        (small.cached_loop, "reads from a cache"),
        (cached_and_called_in_parts, "reads from a cache"),
        (returns_text, "your loop returned no tensor"),
        (no_return, "return the longer ids"),
        (never_calls, "never called the model"),
        (changes_the_prompt, "changed the prompt"),
        (raises, "AttributeError in line"),
    ],
)
def test_score_last_row_wrong(model, wrong, hint):
    feedback = exercises.score_last_row(wrong, model, small.prompt(6), n=12)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback.message
    assert len(feedback.hints) == 2 and "generate" not in vars(model)


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


def as_numpy(a, b):
    return np.isclose(a, b, rtol=1e-3, atol=1e-3).all(-1)


@pytest.mark.parametrize(
    "right", [close_enough, as_numpy, lambda a, b: close_enough(a, b).int().tolist()]
)
def test_reusable_solved_in_any_form(texts, right):
    assert exercises.reusable(right, *texts).passed


def test_reusable_not_done_yet(texts):
    feedback = exercises.reusable(stub, *texts)
    assert feedback.state == "not done yet" and len(feedback.hints) == 2


def test_reusable_may_work_in_place(texts):
    before = [each.clone() for each in texts]
    assert exercises.reusable(lambda a, b: a.sub_(b).abs().amax(-1) < 1e-3, *texts).passed
    assert all(map(torch.equal, texts, before))


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (lambda a, b: (a == b).all(-1), "Allow a small tolerance"),
        (lambda a, b: close_enough(a, b)[0].expand(5, 7), "Look higher up"),
        (lambda a, b: ~close_enough(a, b), "the wrong way round"),
        (lambda a, b: close_enough(a, b) & (torch.arange(5) == 0)[:, None], "in layer 0 only"),
        (lambda a, b: torch.zeros(5, 7), "nothing can be reused"),
        (lambda a, b: torch.ones(5, 7), "layer 0, position 0 can be reused"),
        (lambda a, b: (a - b).norm(dim=-1), "other numbers: compare them with a tolerance"),
        (lambda a, b: close_enough(a, b).T, "(5, 7), but got (7, 5)"),
        (lambda a, b: close_enough(a, b) & (torch.arange(7) < 3), "can't be reused|tolerance"),
        (lambda a, b: (a - b).abs() < 1e-3, r"(5, 7), but got (5, 7, 11)"),
        (lambda a, b: True, "but got True"),
        (lambda a, b: close_enough(a[..., :5], b[..., :5]), "only an entry's values differ"),
        (lambda a, b: close_enough(a[..., 5:], b[..., 5:]), "only an entry's keys differ"),
        (lambda a, b: (a - b).sum(-1).abs() < 1e-4, "numbers in another order"),
        (lambda a, b: (a.mean(-1) - b.mean(-1)).abs() < 1e-4, "Compare number with number"),
        (lambda a, b: (a.norm(dim=-1) - b.norm(dim=-1)).abs() < 1e-4, "another order"),
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
