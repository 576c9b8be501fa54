"""`kv.check`: every right loop passes, and every wrong one fails by its own name."""

import functools
from functools import cache

import loops
import pytest
import small
import strange_loops
import torch

from kvviz.checking.causes import ADVICE
from kvviz.checking.loop import check, judge_loop, uncached_reference


@pytest.fixture(autouse=True)
def no_grad():
    with torch.no_grad():
        yield


@cache
def build(kind, dtype=torch.float32, **sizes):
    return kind(**sizes).to(dtype)


@cache
def _reference(model, tokens, n):
    return uncached_reference(model, torch.tensor([tokens]), n)


def judge(loop, model, ids, n=12):
    """`check`, with what is right computed once for each model and prompt."""
    return judge_loop(loop, model, _reference(model, tuple(ids[0].tolist()), n))


@pytest.fixture(scope="module")
def llama():
    return build(small.llama)


# -- right loops pass ----------------------------------------------------------------------------


@pytest.mark.parametrize("loop", loops.RIGHT)
@pytest.mark.parametrize("kind", [small.llama, small.gpt2, small.gpt_neox])
def test_right_loops_pass(kind, loop):
    verdict = judge(loop, build(kind), small.prompt(6))
    assert verdict.passed, verdict
    equal = "equal in tokens, logits, keys and values; 1 row a step"
    assert verdict.headline == (LIBRARYS if loop is loops.by_generate else equal)
    assert len(verdict.findings) == 4


LIBRARYS = "right, but that's the library's own loop: write yours"


class Wraps:
    """The library's loop behind an object, which is called and has a name of its own."""

    def __call__(self, model, ids, n):
        return loops.by_generate(model, ids, n=n)


@pytest.mark.parametrize(
    "loop",
    [functools.partial(loops.by_generate), Wraps(), lambda *given: loops.by_generate(*given)],
)
def test_the_librarys_loop_is_right_and_not_the_learners_however_it_is_wrapped(llama, loop):
    verdict = judge(loop, llama, small.prompt(6))
    assert verdict.passed and verdict.mark == "✓" and verdict.headline == LIBRARYS
    assert not verdict.savings


def test_a_loop_that_only_asks_the_library_for_the_prompt_is_the_learners(llama):
    def asks(model, ids, n):
        given = model.generate(
            ids, max_new_tokens=1, do_sample=False, return_dict_in_generate=True, use_cache=True
        )
        cache, token = given.past_key_values, given.sequences[:, -1:]
        produced = [token]
        for _ in range(n - 1):
            out = model(produced[-1], cache=cache)
            produced.append(out.logits[:, -1:].argmax(-1))
        return torch.cat([ids, *produced], dim=-1)

    verdict = judge(asks, llama, small.prompt(6))
    assert verdict.passed and verdict.headline.startswith("equal in tokens")


def test_a_text_of_equal_tokens_proves_little_and_says_so(llama):
    says = "every new token is the same, and equal tokens can hide a mistake: try another prompt"
    assert says in judge(loops.right, llama, torch.full((1, 7), 9)).remarks
    assert not judge(loops.right, llama, small.prompt(6)).remarks


PROMPTS = [small.prompt(p, seed=p) for p in (1, 2, 3, 5, 8, 13, 21, 34, 55)]
REPEATED = [torch.full((1, 7), 9), torch.tensor([[5, 6] * 4]), small.prompt(6)[:, [0, 1, 1, 0]]]
PROMPTS += REPEATED


@pytest.mark.parametrize("ids", PROMPTS, ids=lambda ids: f"{ids.shape[1]} tokens")
@pytest.mark.parametrize("loop", [loops.right, loops.in_chunks, loops.token_by_token])
def test_no_false_alarm_on_any_prompt(llama, loop, ids):
    verdict = judge(loop, llama, ids)
    assert verdict.passed, verdict


UNUSUAL = [loops.right, loops.token_by_token, loops.in_chunks, loops.copied_each_step]
UNUSUAL += [loops.positions_by_hand, loops.static_cache]
MORE = [*PROMPTS, small.prompt(4, seed=1), small.prompt(9, seed=2), small.prompt(200)]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("kind", [small.llama, small.gpt2, small.gpt_neox])
@pytest.mark.parametrize("which", range(15), ids=lambda which: f"{MORE[which].shape[1]} tokens")
def test_no_false_alarm_on_any_architecture_and_precision(kind, dtype, which):
    """Every prompt on every model; the loops take turns, so that each meets each model."""
    assert len(MORE) == 15
    model = build(kind, dtype, n_positions=256)
    loop = UNUSUAL[which % len(UNUSUAL)]
    verdict = judge(loop, model, MORE[which], 4)
    assert verdict.passed, f"{loop.__name__}: {verdict}"


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_pass(dtype):
    verdict = check(loops.right, build(small.llama, dtype), small.prompt(6), 4)
    findings = {finding.name: finding.passed for finding in verdict.findings}
    assert findings["logits"] and findings["keys and values"] and findings["work"], verdict


@pytest.mark.parametrize("kind", [small.mistral, small.gemma3, small.deepseek_v3, small.gpt_oss])
def test_windows_and_latents_pass(kind):
    verdict = check(loops.right, build(kind), small.prompt(7), 8)
    assert verdict.passed, verdict


def test_the_last_token_fed_too_is_a_remark(llama):
    verdict = judge(loops.last_token_fed_too, llama, small.prompt(6))
    assert verdict.passed and "1 row more than needed" in verdict.remarks[0]
    assert not judge(loops.right, llama, small.prompt(6)).remarks


def test_a_loop_may_stop_where_the_text_ends(llama):
    ids = small.prompt(6)
    end = int(loops.right(llama, ids, 5)[0, -1])
    before = llama.generation_config.eos_token_id
    llama.generation_config.eos_token_id = end

    def stops(model, ids, n):
        return loops.right(model, ids, min(n, 5))  # the text ends there

    try:
        assert judge(stops, llama, ids).passed
        llama.generation_config.eos_token_id = (end + 1) % small.VOCAB
        assert judge(stops, llama, ids).cause == "too few tokens"
    finally:
        llama.generation_config.eos_token_id = before


# -- wrong loops fail, each with its own message -------------------------------------------------


@pytest.fixture(scope="module")
def verdicts(llama):
    """Of each wrong loop, on one prompt."""
    with torch.no_grad():
        return {loop: judge(loop, llama, small.prompt(6)) for loop in loops.WRONG}


@pytest.mark.parametrize("loop", loops.WRONG)
def test_wrong_loops_fail_by_name(verdicts, loop):
    cause, says = loops.WRONG[loop]
    verdict = verdicts[loop]
    assert not verdict.passed
    assert verdict.cause == cause, verdict
    assert says in verdict.headline and verdict.advice, verdict


def test_each_wrong_loop_has_its_own_message(verdicts):
    assert len({verdict.headline for verdict in verdicts.values()}) == len(loops.WRONG)


def test_every_name_has_its_advice(verdicts):
    for verdict in verdicts.values():
        raised = verdict.headline.startswith("your loop raised")
        assert raised or verdict.advice == ADVICE[verdict.cause], verdict
    assert all(advice.endswith(".") for name, advice in ADVICE.items() if name != "not done yet")


@pytest.mark.parametrize("loop", strange_loops.WRONG, ids=lambda loop: loop.__name__)
def test_a_strangers_loop_is_flagged_and_given_no_wrong_name(llama, loop):
    verdict = judge(loop, llama, small.prompt(6))
    assert not verdict.passed and verdict.cause == strange_loops.WRONG[loop], verdict
    assert verdict.advice and verdict.headline.startswith("step ")


OF_ANY_PROMPT = [loop for loop in loops.WRONG if loop is not loops.prompt_reversed]  # palindromes


@pytest.mark.parametrize(
    "number", range(len(OF_ANY_PROMPT)), ids=lambda i: OF_ANY_PROMPT[i].__name__
)
def test_wrong_loops_fail_on_any_prompt(llama, number):
    """Also where tokens repeat: nothing is judged by a token's number alone."""
    lengths = PROMPTS[1 : -len(REPEATED)]  # each loop takes two of these, in turn
    for ids in [*REPEATED, *(lengths[(number + i) % len(lengths)] for i in (0, 4))]:
        assert not judge(OF_ANY_PROMPT[number], llama, ids, 6).passed, ids


def test_a_cache_of_another_text_is_called_stale(llama):
    verdict = check(loops.filled_before(llama, small.prompt(9, seed=3)), llama, small.prompt(6), 5)
    assert verdict.cause == "stale cache" and "held 9 tokens before" in verdict.headline


def test_a_cache_that_outlives_the_call_is_found_by_a_second_call(llama):
    verdict = check(loops.shared_cache(), llama, small.prompt(6), 5)
    assert verdict.cause == "stale cache" and "second call" in verdict.headline


def test_a_loop_that_does_not_take_the_best_token_is_found_by_a_second_call(llama):
    loops.drawn_at_random.calls = 0
    verdict = check(loops.drawn_at_random, llama, small.prompt(6), 5)
    assert verdict.cause == "not greedy" and "had the highest score" in verdict.headline


def test_the_tokens_may_be_equal_and_the_check_still_fails(verdicts):
    findings = {finding.name: finding.passed for finding in verdicts[loops.never_read].findings}
    assert findings == {"tokens": True, "logits": True, "keys and values": True, "work": False}


def test_a_loops_exception_is_told_in_its_own_lines(verdicts):
    verdict = verdicts[loops.raises]
    assert verdict.headline.startswith("your loop raised AttributeError")
    assert "of raises:  return out.past_kv" in verdict.advice
    assert "kvviz" not in verdict.advice and "site-packages" not in verdict.advice


def test_the_first_difference_has_a_place(verdicts):
    verdict = verdicts[loops.position_restarts]
    assert (verdict.step, verdict.layer, verdict.position) == (1, 0, 6)
    says = next(finding.says for finding in verdict.findings if finding.name == "keys and values")
    assert says.startswith("first at step 1, layer 0, position 6: off by ")


@pytest.mark.parametrize("stub", [lambda *_: None, lambda *_: ...])
def test_a_stub_is_not_done_yet(llama, stub):
    verdict = judge(stub, llama, small.prompt(6))
    assert verdict.cause == "not done yet" and repr(verdict).startswith("· not done yet")


def test_something_without_a_name_is_not_given_one(llama):
    def nudged(model, ids, n):
        weight = model.model.layers[1].mlp.down_proj.weight
        with torch.no_grad():
            weight.mul_(1.01)
            try:
                return loops.right(model, ids, n)
            finally:
                weight.div_(1.01)

    verdict = judge(nudged, llama, small.prompt(6))
    assert not verdict.passed and verdict.cause == "not recognised"
    assert verdict.layer == 2 and verdict.position == 0


# -- how it reads --------------------------------------------------------------------------------


def test_a_verdict_reads_the_same_as_text_and_as_html(verdicts):
    verdict = verdicts[loops.prompts_last_token_fed]
    text, page = repr(verdict), verdict._repr_html_()
    assert text.splitlines()[0] == f"✗ {verdict.headline}"
    for finding in verdict.findings:
        assert finding.says in text
    assert "<table>" in page and "Feed the token you just produced" in page


@pytest.mark.parametrize(
    ("ids", "n", "says"),
    [
        (torch.zeros(2, 6).long(), 5, r"one prompt of shape \(1, p\), and got \(2, 6\)"),
        (torch.zeros(1, 0).long(), 5, r"got \(1, 0\)"),
        ([[1, 2]], 5, "got list"),
        (torch.zeros(1, 6).long(), 2, "at least 3, .* got 2"),
        (torch.zeros(1, 6).long(), True, "at least 3, .* got True"),
    ],
)
def test_bad_input_is_refused(llama, ids, n, says):
    with pytest.raises(ValueError, match=says):
        check(loops.right, llama, ids, n)


def test_a_text_longer_than_the_model_knows_is_refused():
    with pytest.raises(ValueError, match="17 positions"):
        check(loops.right, build(small.gpt2, n_positions=17), small.prompt(13), 6)


# -- on the course's own model -------------------------------------------------------------------

TEXTS = ["The first law of motion states", "the cat the cat the cat", "1, 2, 3,", "Once"]


@pytest.mark.parametrize("text", TEXTS)
def test_the_right_loop_passes_on_the_default_model(default_model, text):
    model, tokenizer = default_model
    ids = tokenizer(text, return_tensors="pt").input_ids
    assert judge(loops.right, model, ids, 4).passed


@pytest.mark.parametrize("loop", loops.WRONG)
def test_wrong_loops_fail_by_name_on_the_default_model(default_model, loop):
    model, tokenizer = default_model
    ids = tokenizer(TEXTS[0], return_tensors="pt").input_ids
    verdict = judge(loop, model, ids, 4)
    assert verdict.cause == loops.WRONG[loop][0], verdict
    if loop is loops.prompts_last_token_fed:  # a token is called by its text
        assert verdict.headline == "step 1: ' states' was fed again"


def test_logits_that_come_from_a_wrong_past_are_not_called_right(llama):
    def forgetful(model, ids, n):
        text, fed = ids, ids
        for _ in range(n):
            fed = model(fed, use_cache=True).logits[:, -1:].argmax(-1)  # without the cache
            text = torch.cat([text, fed], dim=1)
        return text

    verdict = judge(forgetful, llama, small.prompt(6))
    logits = next(finding for finding in verdict.findings if finding.name == "logits")
    assert logits.passed is None
    assert logits.says == "equal up to step 0; the rows after it come from a wrong past"
