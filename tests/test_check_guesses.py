"""`kv.check` of loops that guess: right ones pass whatever they guess, wrong ones are named."""

from functools import cache

import guessing_loops
import pytest
import small
import torch
from guessing_loops import (
    RIGHT,
    WRONG,
    Guessing,
    OwnRowCompared,
    PastRecorded,
    TextNeverGrows,
    draft_of,
    guess_from,
    guess_the_same,
    guess_with,
)

from kvviz.checking import loop as checking
from kvviz.checking.causes import ADVICE
from kvviz.checking.loop import judge_loop, uncached_reference

N = 16  # new tokens
KINDS = {"gpt_neox": small.gpt_neox, "gpt2": small.gpt2, "llama": small.llama}


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@cache
def build(kind, *sizes):
    return kind(*sizes)


@cache
def compute_reference(model, seed=0):
    with torch.no_grad():
        return uncached_reference(model, small.prompt(6, seed=seed), N)


@pytest.fixture(scope="module")
def neox():
    """Its text has variety: 16 tokens, of which a draft guesses 3, 0, 3, 0, 2 and 1 right."""
    return build(small.gpt_neox)


def judge(kind, model, guess=None, seed=0):
    guess = guess or guess_with(draft_of(model))
    return judge_loop(kind(guess), model, compute_reference(model, seed))


# -- right loops pass ------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", RIGHT, ids=lambda kind: kind.__name__)
def test_a_right_loop_that_guesses_passes(neox, kind):
    verdict = judge(kind, neox)
    assert verdict.passed, verdict


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_right_loops_that_guess_pass_on_any_architecture(name):
    for kind in RIGHT[::4] if name == "gpt2" else RIGHT[2::4]:
        verdict = judge(kind, build(KINDS[name]))
        assert verdict.passed, f"{kind.__name__}: {verdict}"


@pytest.mark.parametrize("build_model", [small.mistral, small.gemma3])
def test_a_window_can_go_back_before_it_is_full_or_if_it_recorded_what_it_forgot(build_model):
    assert judge(Guessing, build(build_model, 64), seed=1).passed
    assert judge(PastRecorded, build(build_model, 5), seed=1).passed
    verdict = judge(Guessing, build(build_model, 5), seed=1)
    assert verdict.cause == "raised" and "activate_past_recording" in verdict.headline


LIBRARYS = {
    "prompt lookup": lambda model: dict(prompt_lookup_num_tokens=4),
    "assistant": lambda model: dict(assistant_model=draft_of(model)),
}


@pytest.mark.parametrize("options", LIBRARYS.values(), ids=LIBRARYS)
def test_the_librarys_guesses_are_right_and_not_the_learners(neox, options):
    options = options(neox)
    verdict = judge(
        lambda _: (
            lambda model, ids, n: model.generate(ids, max_new_tokens=n, do_sample=False, **options)
        ),
        neox,
    )
    assert verdict.passed and "that's the library's own loop" in verdict.headline, verdict
    assert "saved" in verdict.remarks[1]


def test_a_loop_that_guesses_may_stop_where_the_text_ends(neox):
    end = int(compute_reference(neox).ids[0, 15])

    class Stops(Guessing):
        def give(self, text, length):
            new = text[0, self.n_prompt :].tolist()
            return text[:, : self.n_prompt + new.index(end) + 1] if end in new else text

    before, neox.generation_config.eos_token_id = neox.generation_config.eos_token_id, end
    try:
        verdict = judge(Stops, neox)
    finally:
        neox.generation_config.eos_token_id = before
    assert verdict.passed, verdict


def remarks(verdict):
    return tuple(each for each in verdict.remarks if "repeats" not in each)


def test_the_rows_beyond_need_are_told_apart(neox):
    g = guessing_loops
    spent, saved = remarks(judge(Guessing, neox))
    assert spent == "12 rows more than needed: 12 guesses turned out wrong"
    assert saved == "9 passes of the model for 16 new tokens: 7 passes saved"
    says = "12 guesses turned out wrong and {}"
    again = says.format("7 tokens were fed again")
    assert remarks(judge(g.OneTooManyFedAgain, neox))[0] == f"19 rows more than needed: {again}"
    past = says.format("5 rows were past the last one needed")
    assert remarks(judge(g.PastTheEnd, neox))[0] == f"17 rows more than needed: {past}"


def test_guesses_that_save_nothing_say_so_and_guesses_that_are_all_right_cost_nothing(neox):
    assert remarks(judge(Guessing, neox, guess_the_same)) == (
        "39 rows more than needed: 39 guesses turned out wrong",
        "16 passes of the model for 16 new tokens: no pass saved",
    )
    known = guess_from(compute_reference(neox).ids)
    assert remarks(judge(Guessing, neox, known)) == (
        "5 passes of the model for 16 new tokens: 11 passes saved",
    )
    verdict = judge(guessing_loops.TwoBranches, neox, guess_the_same)
    assert remarks(verdict)[1].endswith(": 30 more than without guesses")


def test_copies_with_more_and_more_guesses_are_not_taken_for_a_text_fed_again(neox):
    """In a short text the tokens fed again soon are a third of all."""
    known = guess_from(compute_reference(neox).ids)
    verdict = judge(guessing_loops.DoublingK, neox, known)
    assert verdict.passed and "15 tokens were fed again" in verdict.remarks[0], verdict


# -- wrong loops have names ------------------------------------------------------------------------


@pytest.fixture(scope="module")
def verdicts(neox):
    with torch.no_grad():
        return {kind: judge(kind, neox) for kind in WRONG}


@pytest.mark.parametrize("kind", WRONG, ids=lambda kind: kind.__name__)
def test_a_wrong_loop_that_guesses_is_named(verdicts, kind):
    cause, says = WRONG[kind]
    verdict = verdicts[kind]
    assert not verdict.passed and verdict.cause == cause, verdict
    assert says in verdict.headline, verdict.headline
    assert verdict.advice == ADVICE[cause] or cause == "raised"


NAMES = {kind: {cause} for kind, (cause, _) in WRONG.items()}
NAMES[guessing_loops.CroppedTwice] |= {"cache went back"}  # or an older cache was passed on
NAMES[guessing_loops.BonusFedAlone] |= {"token fed twice"}  # where the text repeats it anyway
NAMES[guessing_loops.GuessesFedAlone] |= {"another token fed"}  # a wrong guess in front
NAMES[guessing_loops.BonusOfTheRowBefore] |= {"not greedy"}
NAMES[guessing_loops.BonusReturnedTwice] |= {"another token returned"}  # tokens that repeat


@pytest.mark.parametrize(("name", "start"), [("llama", 0), ("gpt2", 2)])
def test_no_model_gives_a_wrong_loop_a_wrong_name(name, start):
    """Some loops on each model; with repeated tokens a mistake may leave less."""
    kinds = [kind for kind in WRONG if WRONG[kind][0] != "raised"][start::4]
    for kind in kinds:
        verdict = judge(kind, build(KINDS[name]))
        assert verdict.cause in NAMES[kind] | {"not recognised"}, f"{kind.__name__}: {verdict}"


@pytest.mark.parametrize("name", ["llama", "gpt2"])
def test_a_guess_compared_with_its_own_row_is_named_where_that_accepts_too_many(name):
    verdict = judge(OwnRowCompared, build(KINDS[name]))
    assert verdict.cause == "guess compared with the wrong row", verdict
    assert "It was compared with the choice of its own row" in verdict.headline


def test_a_guess_compared_with_its_own_row_that_accepts_too_few_is_right_and_wasteful(neox):
    verdict = judge(OwnRowCompared, neox)
    assert verdict.passed and "16 tokens were fed again" in verdict.remarks[0], verdict


def test_a_text_that_never_grows_for_want_of_the_bonus_token_is_told_so(neox, monkeypatch):
    monkeypatch.setattr(checking, "SECONDS", 0.2)
    verdict = judge(TextNeverGrows, neox)
    assert verdict.cause == "bonus token missing", verdict
    assert "you fed '75' again, which was held already; your loop was stopped" in verdict.headline


def test_positions_after_guesses_are_named_where_they_are_learned_too():
    for kind in (guessing_loops.PositionsGoOn, guessing_loops.PositionsOneBehind):
        assert judge(kind, build(small.gpt2)).cause == WRONG[kind][0]


# -- the picture -----------------------------------------------------------------------------------


def test_the_picture_shows_the_pass_that_found_a_wrong_guess_in_the_cache(verdicts):
    sentence = verdicts[guessing_loops.OneStays].picture.sentence
    assert (
        sentence.startswith("yours: step 3, ") and "column 11 holds '64', expected '60'" in sentence
    )
    assert "3 guesses not shown. expected: 12 columns, 1 row" in sentence


def test_the_picture_shows_no_guess_that_is_no_mistake(verdicts):
    sentence = verdicts[guessing_loops.OneTooMany].picture.sentence
    assert "10 columns, 1 row; column 9 holds '81', expected '75'" in sentence
    assert "3 guesses not shown. expected: 11 columns, 1 row" in sentence


def test_the_picture_shows_the_first_wrong_guess_where_it_was_accepted(verdicts):
    sentence = verdicts[guessing_loops.NothingCompared].picture.sentence
    assert "12 columns, 2 rows; column 11 holds '64', expected '60'" in sentence
    assert "2 guesses not shown. expected: 12 columns, 2 rows" in sentence
