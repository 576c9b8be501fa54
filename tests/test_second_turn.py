"""`kv.check(..., then=...)`: a loop that keeps its cache, called with the text of the next turn."""

from functools import cache

import chats
import loops
import pytest
import small
import torch

from kvviz.checking.loop import check, judge_turns, uncached_reference
from kvviz.checking.loop_inputs import rotation_limit

N = 4


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@cache
def build(kind=small.llama):
    return kind()


@cache
def write(kind=small.llama):
    """The texts of a second turn, after one of 6 tokens of prompt and 4 new ones."""
    text = small.plain_loop(build(kind), small.prompt(6), N)
    went_on = torch.cat([text, small.prompt(6, seed=3)], dim=1)
    edited, first = went_on.clone(), went_on.clone()
    edited[0, 5], first[0, 0] = (edited[0, 5] + 1) % small.VOCAB, (first[0, 0] + 1) % small.VOCAB
    texts = {"went on": went_on, "edited": edited, "first edited": first, "held": text[:, :-1]}
    return texts | {"same": text, "shorter": text[:, :7], "another": small.prompt(11, seed=9)}


@cache
def refer(kind, text):
    ids = small.prompt(6) if text is None else write(kind)[text]
    return uncached_reference(build(kind), ids, N)


def judge(loop, text, kind=small.llama):
    """`check` with `then`, with what is right computed once for each text."""
    return judge_turns(loop, build(kind), refer(kind, None), refer(kind, text))


# -- right ---------------------------------------------------------------------------------------

FED = {"went on": (7, 16), "edited": (11, 16), "first edited": (16, 16), "held": (1, 9)}
FED |= {"same": (1, 10), "shorter": (1, 7), "another": (11, 11)}


@pytest.mark.parametrize("text", FED)
def test_a_right_loop_passes_and_its_rows_are_told(text):
    verdict, (fed, n) = judge(chats.Chat(), text), FED[text]
    assert verdict.passed and not verdict.remarks, verdict
    equal = "equal in tokens, logits, keys and values; 1 row a step"
    assert verdict.headline == f"{equal}; second turn: fed {fed} of {n} tokens"
    kept = n - fed
    says = f"equal too: kept {kept}, cropped {9 - kept}, fed {fed}; 1 row a step; {fed + 3} rows in"
    assert verdict.findings[-1].name == "second turn" and says in verdict.findings[-1].says
    if text == "edited":
        assert "rows computed 11, 1, 1, 1" in verdict.picture.sentence
    assert verdict.savings.startswith(f"second turn: {fed + 3} rows instead of ")


OTHERS = [(small.gpt2, chats.Chat), (small.gpt_neox, chats.OneByOne)]


@pytest.mark.parametrize(("kind", "loop"), [*OTHERS, (small.deepseek_v3, chats.Chat)])
def test_right_on_other_models(kind, loop):
    assert judge(loop(), "edited", kind).passed


def test_a_turns_last_token_may_be_fed_in_its_own_turn():
    verdict = judge(chats.FeedsLast(), "went on")
    assert verdict.passed and verdict.headline.endswith("second turn: fed 6 of 16 tokens")
    assert verdict.remarks == ("1 row more than needed: the last token doesn't have to be fed",)


def test_less_kept_than_could_be_is_a_remark():
    verdict = judge(chats.KeepsHalf(), "went on")
    says = "second turn: 5 of the 9 tokens in both texts were cropped and fed again"
    assert verdict.passed and verdict.remarks == (says,)
    says = "second turn: 1 of the 9 tokens in both texts was cropped and fed again"
    assert judge(chats.OneFewer(), "went on").remarks == (says,)


def test_the_librarys_loop_on_a_kept_cache_is_the_librarys():
    kept = {}

    def loop(model, ids, n):
        out = model.generate(
            ids, cache=kept.get("cache"), max_new_tokens=n, do_sample=False, use_cache=True,
            return_dict_in_generate=True,
        )  # fmt: skip
        kept["cache"] = out.cache
        return out.sequences

    verdict = judge(loop, "went on")
    assert verdict.passed and verdict.headline.startswith("right, but that's the library's own")


def test_where_a_window_rules_out_a_crop_a_loop_may_start_again():
    verdict = judge(chats.StartsAgain(), "edited", small.mistral)
    says = "second turn: started again, since these layers can't be cropped that far"
    assert verdict.passed and says in verdict.remarks, verdict
    assert judge(chats.StartsAgain(), "went on", small.mistral).cause == "kept cache not used"
    assert judge(chats.Chat(), "went on", small.mistral).passed


def test_without_then_a_loop_that_keeps_its_cache_is_right_or_stale():
    ids = small.prompt(6)
    chat = chats.Chat()
    assert check(chat, build(), ids, N).passed
    assert check(chat, build(), ids, N).passed  # its cache holds the check's own second prompt
    for wrong in (chats.NeverCrops, chats.ByLength, chats.CropsOneTooFew):
        verdict = check(wrong(), build(), ids, N)
        assert verdict.cause == "stale cache" and "in a second call" in verdict.headline, verdict


# -- wrong ---------------------------------------------------------------------------------------

EDITED = "edited text not cropped"
WRONG = {
    (chats.StartsAgain, "went on"): ("kept cache not used", "used: 16 rows, 7 were needed"),
    (chats.StartsAgain, "shorter"): ("kept cache not used", "used: 7 rows, 1 was needed"),
    (loops.right, "edited"): ("kept cache not used", "used: 16 rows, 11 were needed"),
    (chats.ForgetsCache, "went on"): ("cache not kept", "you fed 7 tokens and the cache held noth"),
    (chats.NeverCrops, "edited"): (EDITED, "held 9 tokens, and only the first 5 are in the new"),
    (chats.NeverCrops, "first edited"): (EDITED, "the cache held 9 tokens of the old text: '49'"),
    (chats.NeverCrops, "shorter"): (EDITED, "new text has 7 tokens, and the cache still held 9"),
    (chats.NeverCrops, "held"): ("token fed twice", "the cache held 9 and you fed 1, and it alre"),
    (chats.ByLength, "edited"): (EDITED, "held 9 tokens, and only the first 5 are in the new"),
    (chats.CropsOneTooFew, "edited"): (EDITED, "3 had been cropped, 4 had to be"),
    (chats.CropsOneTooFew, "shorter"): ("token fed twice", "the cache held 7 and you fed 1"),
    (chats.CropsOneTooMany, "edited"): (
        "new tokens left out",
        "the cache held 4 and you fed 11",
    ),
    (chats.LeavesOutLast, "went on"): (
        "turn's last token missing",
        "held 9 and you fed 6, with",
    ),
    (chats.LeavesOutLast, "edited"): ("new tokens left out", "the cache held 5 and you fed 10"),
    (chats.FeedsMessage, "went on"): ("new tokens left out", "without the 3 before these, from"),
    (chats.FeedsLastTwice, "went on"): ("token fed twice", "already held the first of these, '"),
    (chats.FeedsOther, "went on"): ("prompt not fed as given", "the prompt has"),
    (chats.FeedsWhole, "went on"): ("whole sequence fed", "held 9 and you fed 16: the whole text"),
    (chats.FeedsWhole, "edited"): ("whole sequence fed", "held 5 and you fed 16: the whole text"),
    (chats.FromZero, "went on"): ("position restarts", "is at position 9, but was given 0"),
    (chats.FeedsNothing, "held"): ("nothing fed", "the cache already held all 9 tokens of the"),
    (chats.FeedsNothing, "shorter"): ("nothing fed", "the cache already held all 7 tokens of"),
    (chats.FeedsLastOnTop, "held"): ("token fed twice", "held 9 and you fed 1, and it already"),
}


@pytest.mark.parametrize(
    ("loop", "text"), WRONG, ids=lambda each: each if isinstance(each, str) else each.__name__
)
def test_each_mistake_has_its_name(loop, text):
    verdict = judge(loop() if isinstance(loop, type) else loop, text)
    name, says = WRONG[loop, text]
    assert not verdict.passed and verdict.cause == name, verdict
    assert verdict.headline.startswith("in the second turn: ") and says in verdict.headline
    assert verdict.advice


def test_where_all_is_held_the_advice_is_to_crop_one():
    assert "Crop its last token" in judge(chats.FeedsLastOnTop(), "held").advice
    assert "feed only what comes after them" in judge(chats.FeedsWhole(), "edited").advice


def test_a_mistake_of_the_first_turn_comes_first():
    verdict = judge(loops.never_passed_on, "went on")
    assert not verdict.passed and "turn" not in verdict.headline


def test_guesses_left_by_the_first_turn_are_named():
    class KeepsGuess(chats.Chat):
        def __call__(self, model, ids, n_new):
            text = super().__call__(model, ids, n_new)
            if ids.shape[1] == 6:  # a guess for what comes last, never cropped
                model((text[:, -1:] + 1) % small.VOCAB, cache=self.cache)
            return text

    verdict = judge(KeepsGuess(), "went on")
    assert verdict.cause == "wrong guess kept" and "first call" in verdict.headline, verdict


def test_a_text_that_cannot_be_used_is_refused():
    ids, text = small.prompt(6), write()["went on"]
    for then in (text[0], text[:, :0], text.repeat(2, 1), text.float(), text + 99, [5, 6]):
        with pytest.raises(ValueError, match="^then: expected"):
            check(chats.Chat(), build(), ids, N, then=then)
    with pytest.raises(ValueError, match="^then: GPT2LMHeadModel knows 97 positions"):
        check(chats.Chat(), build(small.gpt2), ids, N, then=small.prompt(95))
    scaled = small.llama(8, rope_parameters={"rope_type": "dynamic", "factor": 2.0})
    assert rotation_limit(scaled) == 8
    with pytest.raises(ValueError, match="^then: 11 tokens, held and new, are more than 8"):
        check(chats.Chat(), scaled, ids[:, :2], N, then=ids[:, :6].repeat(1, 2)[:, :7])
