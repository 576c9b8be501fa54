"""`kv.check` of loops that guess: right ones pass whatever they guess, wrong ones are named."""

from functools import cache

import guessing_loops
import pytest
import small
import strange_guesses
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
    guess_from_the_text,
    guess_the_same,
    guess_with,
)

from kvviz.checking import loop as checking
from kvviz.checking.causes import ADVICE
from kvviz.checking.loop import judge_loop, uncached_reference
from kvviz.checking.loop_watch import Watch
from kvviz.recording.recorder import record

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


def test_a_loop_may_go_on_with_any_sequence_of_a_batch(neox):
    """Whatever was right in a batch of drafts, the wrong guesses are those of the best of them."""
    verdict = judge(guessing_loops.DraftsInABatch, neox)
    spent, saved, counted = remarks(verdict)
    assert spent == "12 rows more than needed: 12 guesses turned out wrong"
    assert saved == "9 passes of the model for 16 new tokens: 7 passes saved"
    assert counted.startswith("up to 2 sequences in a pass: rows are counted in the one")
    assert "of each batch the sequence that is right furthest" in verdict.picture.sentence


@pytest.mark.parametrize("head", [lambda x: x[:, -1], lambda x: x[1, -1:]], ids=["last", "one"])
def test_the_logits_of_each_sequence_are_seen_however_the_head_is_called(neox, head):
    """As one row of each sequence, or as those of another sequence than the first."""
    ids = torch.cat([small.prompt(6, seed=5), compute_reference(neox).ids[:, :6]])
    with record(neox, keep=()) as run, (watch := Watch(run)).attached(neox):
        body = neox.base_model(ids, use_cache=False)
        scores = neox.get_output_embeddings()(head(body[0]))
    seen = watch.rows_of(0, 6, sequence=1)
    assert [*seen] == [5] and torch.equal(seen[5], scores[-1])


def test_the_logits_kept_of_a_large_batch_have_a_bound(neox):
    ids = small.prompt(6).repeat(4, 1)
    with record(neox, keep=()) as run, (watch := Watch(run, room=700)).attached(neox):
        vocabulary = neox(ids, use_cache=False).logits.shape[-1]
    seen = [len(watch.rows_of(0, 6, sequence)) for sequence in range(4)]
    assert 600 <= 6 * vocabulary <= 700 and seen == [6, 6, 0, 0]


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
NAMES[guessing_loops.AllRightOnesCounted] |= {"cropped too few"}  # where tokens can't tell
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


@pytest.mark.parametrize(("name", "start"), [("gpt_neox", 0), ("gpt2", 1)])
def test_the_wrong_draft_of_a_batch_is_named_or_not_recognised(name, start):
    """Its cache, by the columns that went on; its tokens, by what was fed or returned instead."""
    model, spoiled = build(KINDS[name]), guessing_loops
    verdict = judge(spoiled.WorseDraftsCache, model, seed=start)
    assert verdict.cause == "wrong guess kept", verdict
    assert "from sequence 0 of step" in verdict.headline
    assert "as sequence 1 had guessed" in verdict.headline
    assert "batch_select_indices" in verdict.advice
    sentence = verdict.picture.sentence
    assert sentence.startswith(f"yours: step {verdict.step}, ") and " holds '" in sentence
    verdict = judge(spoiled.WorseDraftsTokens, model, seed=start)
    assert verdict.cause in ("another token fed", "another token returned", "not greedy"), verdict


def test_a_guess_compared_with_its_own_row_that_accepts_too_few_is_right_and_wasteful(neox):
    verdict = judge(OwnRowCompared, neox)
    assert verdict.passed and "16 tokens were fed again" in verdict.remarks[0], verdict


def test_a_text_that_never_grows_for_want_of_the_bonus_token_is_told_so(neox, monkeypatch):
    monkeypatch.setattr(checking, "SECONDS", 0.2)
    verdict = judge(TextNeverGrows, neox)
    assert verdict.cause == "bonus token missing", verdict
    assert "you fed '75' again, which was held already; your loop was stopped" in verdict.headline


class FedInsteadOfTheNewest(Guessing):
    """The guesses alone, each compared with its own row; the wrong ones leave the cache again."""

    def feed(self, text, guesses):
        self.n_guesses = guesses.shape[1]
        return guesses if self.n_guesses else text[:, -1:]

    def count(self, fed, best):
        return int((best == fed).long().cumprod(1).sum()) if self.n_guesses else 0

    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-(self.n_guesses - n_right))


class FedNothing(FedInsteadOfTheNewest):
    def feed(self, text, guesses):
        self.n_guesses = guesses.shape[1]
        return guesses


def look_up(model, text, k):
    """As `guess_from_the_text`, and no guess for a token that is new."""
    is_known = bool((text[0, :-1] == text[0, -1]).any())
    return guess_from_the_text(model, text, k if is_known else 0)


@pytest.mark.parametrize("kind", [FedInsteadOfTheNewest, FedNothing])
def test_guesses_fed_without_the_newest_token_are_named_where_they_were_taken_out_again(neox, kind):
    prompt = small.prompt(6, seed=1)
    ids = torch.cat([small.plain_loop(neox, prompt, 4)[:, 5:9], prompt], dim=1)
    verdict = judge_loop(kind(look_up), neox, uncached_reference(neox, ids, 8))
    says = "step 1: the newest token, '64', was not fed: you fed '81' at position 10, and the guess"
    assert verdict.cause == "bonus token missing" and says in verdict.headline, verdict
    assert verdict.headline.endswith("no token at all") == (kind is FedNothing)
    assert verdict.advice.startswith("Each pass feeds the newest token first, and the guesses")


def test_a_text_that_goes_on_too_far_for_its_guesses_is_told_so(neox):
    class GoesOn(Guessing):
        def limit(self, left):
            return self.k

    verdict = judge(GoesOn, neox, guess_from(compute_reference(neox).ids))
    assert verdict.cause == "too many tokens" and verdict.advice != ADVICE[verdict.cause], verdict
    assert "guess no more than are still wanted, or cut the text to n" in verdict.advice


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


# -- loops of somebody who had read the notebook alone ---------------------------------------------

STRANGE = {
    "crops_one_too_few": {"cropped too few"},
    "slices_to_minus_zero": {"cache left empty", "cache not passed on"},  # in the first pass, both
    "counts_right_ones_anywhere": {"guesses counted past a wrong one"},
    "positions_stay_ahead": {"positions not taken back"},
    "backs_up_with_a_shallow_copy": {"wrong guess kept"},
    "feeds_the_last_guess_again": {"bonus token missing"},
    "takes_the_last_rows_choice": {"bonus token from the wrong row"},
    "accepts_the_second_best": {"wrong guess accepted"},
    "crops_all_guesses": {"cropped too many"},
}


@cache
def judge_strange(name, kind, seed):
    model = build(KINDS[kind])
    ids = torch.cat([small.prompt(5, seed=seed)] * 3, dim=1)  # a text that repeats itself
    return judge_loop(getattr(strange_guesses, name), model, uncached_reference(model, ids, N))


@pytest.mark.parametrize("name", STRANGE)
def test_a_strangers_wrong_loop_has_its_own_name_or_does_no_harm(name):
    where = [("llama", 0), ("llama", 1), ("gpt_neox", 0)]
    causes = {judge_strange(name, *each).cause for each in where} - {None, ""}
    assert causes and causes <= STRANGE[name]


@pytest.mark.parametrize("loop", strange_guesses.RIGHT, ids=lambda loop: loop.__name__)
def test_a_strangers_right_loop_passes(loop):
    for kind, seed in (("llama", 0), ("llama", 1), ("gpt_neox", 0)):
        verdict = judge_strange(loop.__name__, kind, seed)
        assert verdict.passed, verdict


def test_guesses_hidden_by_a_mask_are_said_to_be_unchecked_and_not_wrong():
    verdict = judge_strange("masks_instead_of_crop", "llama", 0)
    assert verdict.cause == "hidden tokens" and "isn't checked" in verdict.headline


@pytest.mark.parametrize("options", [{}, {"use_cache": False}], ids=["dropped", "none"])
def test_guesses_without_a_cache_are_no_cached_loop(options):
    def loop(model, ids, n):
        text, end = ids[0].tolist(), ids.shape[1] + n
        while len(text) < end:
            guesses = strange_guesses.latest(text, 4)[: end - len(text) - 1]
            best = model(torch.tensor([text + guesses]), **options).logits[0].argmax(-1).tolist()
            best = best[len(text) - 1 :]
            text += best[: strange_guesses.leading(guesses, best) + 1]
        return torch.tensor([text])

    model = build(small.llama)
    ids = torch.cat([small.prompt(5, seed=0)] * 3, dim=1)
    verdict = judge_loop(loop, model, uncached_reference(model, ids, N))
    assert verdict.cause == "cache never read", verdict
