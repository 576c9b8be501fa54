"""The exercises on serving: right answers pass in any form, wrong ones get their own hint."""

import re
from math import ceil

import pytest
import small
import torch
from transformers import GenerationConfig
from transformers.generation.configuration_utils import ContinuousBatchingConfig

import kvviz as kv
from kvviz.exercises import schedules, scheduling, serving


@pytest.fixture(scope="module")
def model():
    return small.llama()


def serve(model, prompts, *, new=5, **config):
    """What the library's engine does with these prompts."""
    chosen = GenerationConfig(max_new_tokens=new, do_sample=False, eos_token_id=-1)
    config = ContinuousBatchingConfig(safety_margin=0.0, **config)
    with kv.record_serving(model) as served:
        model.generate_batch(
            prompts, generation_config=chosen, continuous_batching_config=config, progress_bar=False
        )
    return served


def random_prompts(*lengths, start=()):
    return [[*start, *small.prompt(n, seed=i + n)[0].tolist()] for i, n in enumerate(lengths)]


# -- positions -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "positions",
    [
        lambda mask: (mask.cumsum(-1) - 1).clamp(min=0),
        lambda mask: (mask.cumsum(-1) - 1).masked_fill(mask == 0, 1),
        lambda mask: torch.arange(mask.shape[1]) - (1 - mask).sum(-1, keepdim=True),
        lambda mask: [[max(0, sum(row[: i + 1]) - 1) for i in range(len(row))]
                      for row in mask.tolist()],
    ],
)  # fmt: skip
def test_right_positions_pass_whatever_pads_get(positions):
    feedback = kv.exercises.positions_from_mask(positions)
    assert feedback.passed, feedback
    negative = bool((torch.as_tensor(positions(torch.tensor([[0, 1]]))) < 0).any())
    assert ("negative" in feedback.message) == negative


@pytest.mark.parametrize("way", serving._POSITIONS)
def test_each_wrong_way_to_positions_has_its_hint(way):
    feedback = kv.exercises.positions_from_mask(way.answer)
    assert feedback.message == way.hint
    assert len(feedback.hints) == 2


def test_one_row_for_all_is_the_mistake_of_counting_columns():
    feedback = kv.exercises.positions_from_mask(lambda mask: torch.arange(mask.shape[1]))
    assert "row 2 starts at 3" in feedback.message


def test_the_mistake_without_minus_one_is_called_harmless_under_rotary():
    feedback = kv.exercises.positions_from_mask(lambda mask: mask.cumsum(-1))
    assert "harmless under rotary" in feedback.message
    assert "not with learned positions" in feedback.message


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda mask: mask.sum(), "the token in column 0 gets position 11"),
        (lambda mask: "0", "expected a position for each token, \\(2, 7\\), but got '0'"),
        (lambda mask: torch.zeros(3, 3), "expected a position for each token"),
        (lambda mask: mask.cumsum(-1) * 2 - 2, "the token in column 1 gets position 2"),
        (lambda mask: 1 / 0, "raised ZeroDivisionError"),
    ],
)
def test_other_wrong_positions_are_shown(answer, says):
    feedback = kv.exercises.positions_from_mask(answer)
    assert feedback.state == "not right yet"
    assert re.search(says, feedback.message), feedback


def test_positions_not_written_yet():
    assert kv.exercises.positions_from_mask(lambda mask: ...).state == "not done yet"


# -- a scheduler -----------------------------------------------------------------------------------


def schedule(running, waiting, budget):
    rows = {}
    needs = [(name, 1) for name, left in running.items() if left == 0]
    needs += [each for each in [*running.items(), *waiting.items()] if each[1]]
    for name, need in needs:
        rows[name] = min(need, budget)
        budget -= rows[name]
    return rows


def test_ten_lines_do_as_pairs_or_without_empty_ones_too():
    for answer in (
        schedule,
        lambda *turn: [*schedule(*turn).items()],
        lambda *turn: {name: n for name, n in schedule(*turn).items() if n},
    ):
        assert kv.exercises.scheduler(answer).passed


@pytest.mark.parametrize("way", schedules.MISTAKES, ids=lambda way: way.__name__)
def test_each_wrong_scheduler_has_its_hint(way):
    feedback = kv.exercises.scheduler(way)
    assert feedback.message == schedules.MISTAKES[way]
    assert len(feedback.hints) == 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda r, w, b: {**r, **w}, "with room for 32 rows, you feed 42"),
        (lambda r, w, b: {"moon": 1}, "there's no request 'moon'"),
        (lambda r, w, b: {"sky": -1}, "sky gets -1 rows in schedule(running={}, "),
        (lambda r, w, b: schedule(r, w, b) | dict.fromkeys(w, -1), "gets -1 rows"),
        (lambda r, w, b: {"sky": 0.5}, "expected rows by name, as {'sky': 1}, but got"),
        (lambda r, w, b: 3, "expected rows by name, as {'sky': 1}, but got 3"),
        (lambda r, w, b: {}, "32 rows stay empty"),
        (lambda r, w, b: {n: min(k, 2) for n, k in schedule(r, w, b).items()}, "rows stay empty"),
    ],
)
def test_other_wrong_schedules_are_told_apart(answer, says):
    feedback = kv.exercises.scheduler(answer)
    assert feedback.state == "not right yet"
    assert says in feedback.message


def test_a_scheduler_that_changes_what_it_is_given_changes_nothing_here():
    def greedy(running, waiting, budget):
        rows = schedule(running, waiting, budget)
        running.clear(), waiting.clear()
        return rows

    assert kv.exercises.scheduler(greedy).passed
    assert scheduling._TURNS[0].waiting


@pytest.mark.parametrize(
    ("lengths", "start", "budget"),
    [((3, 29, 7, 13), (), 8), ((9, 4, 6), tuple(range(5, 17)), 16), ((2, 3, 4), (), 2)],
)
def test_the_rule_is_the_engines_own(model, lengths, start, budget):
    """Chunks, prompts that begin alike, and fewer rows than requests that decode."""
    served = serve(
        model, random_prompts(*lengths, start=start), page_size=4, num_blocks=64,
        max_batch_tokens=budget,
    )  # fmt: skip
    feedback = kv.exercises.scheduler(schedule, served, budget)
    assert feedback.passed, feedback
    assert f"in all its {len(served)} passes" in feedback.message
    turns = scheduling.list_turns(served, budget)
    for turn, step in zip(turns, served, strict=True):
        rows = {name: n for name, n in schedule(*turn).items() if n}
        assert rows == {each.name: each.rows for each in step.requests}
    for way in (schedules._whole_prompts, schedules._static, schedules._never_admits):
        assert not kv.exercises.scheduler(way, served, budget).passed


def test_a_recording_that_says_more_than_the_rule_is_refused(model):
    prompts = random_prompts(13, 13, 13, start=tuple(range(5, 21)))
    served = serve(model, prompts, new=8, page_size=16, num_blocks=6, max_batch_tokens=96)
    with pytest.raises(ValueError, match="record it with more num_blocks"):
        kv.exercises.scheduler(schedule, served, 96)
    with pytest.raises(ValueError, match="max_batch_tokens: expected a whole number of at least"):
        kv.exercises.scheduler(schedule, served)
    with pytest.raises(TypeError, match="served: expected a recording of an engine"):
        kv.exercises.scheduler(schedule, [1], 8)


# -- texts in pages --------------------------------------------------------------------------------


def fits(budget, prefix, own, page):
    return prefix // page + sum(ceil((prefix % page + n) / page) for n in own) <= budget


def test_fits_passes_as_bool_or_number():
    assert kv.exercises.fits(fits).passed
    assert kv.exercises.fits(lambda *case: int(fits(*case))).passed
    assert kv.exercises.fits(lambda *case: torch.tensor(fits(*case))).passed


@pytest.mark.parametrize("way", serving._FITS)
def test_each_wrong_way_to_fit_has_its_hint(way):
    feedback = kv.exercises.fits(way.answer)
    assert feedback.message == way.hint
    assert len(feedback.hints) == 2


def test_the_two_typical_hints_are_told_apart():
    says = [way.hint for way in serving._FITS]
    assert sum(hint.startswith("the last page is partly empty") for hint in says) == 1
    assert sum(hint.startswith("a shared page counts once") for hint in says) == 1


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda *case: not fits(*case), "the wrong way round"),
        (lambda *case: True, "you say they fit"),
        (lambda *case: False, "you say they don't fit"),
        (lambda *case: "yes", "return True if they fit"),
        (lambda *case: 7, "return True if they fit"),
    ],
)
def test_other_wrong_answers_to_fits(answer, says):
    feedback = kv.exercises.fits(answer)
    assert feedback.state == "not right yet"
    assert says in feedback.message


def test_fits_not_written_yet():
    assert kv.exercises.fits(lambda budget, prefix, own, page: ...).state == "not done yet"


def test_the_engine_serves_all_at_once_with_exactly_that_budget_and_not_with_one_page_less(model):
    prefix, own, page, new = 16, [20, 20, 20], 16, 8  # the last new token is never fed
    prompts = random_prompts(*(n - new + 1 for n in own), start=tuple(range(5, 5 + prefix)))
    lengths = [prefix + n for n in own]
    budget = kv.count.pages_needed(lengths, page, prefix=prefix)
    assert fits(budget, prefix, own, page) and not fits(budget - 1, prefix, own, page)
    enough, short = (
        serve(model, prompts, new=new, page_size=page, num_blocks=n, max_batch_tokens=96)
        for n in (budget, budget - 1)
    )
    assert [len(step.requests) for step in enough] == [3] * new
    last = enough[len(enough) - 1]
    assert len(last.owners) == budget == last.n_pages
    assert [each.held for each in last.requests] == lengths
    itemsize = next(model.parameters()).element_size()
    in_pages = kv.count.paged_bytes(model.config, lengths, page, prefix=prefix)
    per_token = kv.count.bytes_per_token(model.config, bytes_per_number=itemsize)
    assert in_pages == last.allocated_cells * per_token
    assert any(step.preempted for step in short)
    assert len(short) > len(enough)
