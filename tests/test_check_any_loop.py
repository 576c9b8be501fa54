"""`kv.check` on loops of any kind: unusual right ones pass, and no loop breaks the check."""

import copy
import functools
import random
import re
import threading
import time

import loops
import numpy as np
import pytest
import small
import torch
import unusual_loops
from test_check_loop import build, judge

import kvviz as kv
from kvviz.checking import loop as checking
from kvviz.checking.loop import check
from kvviz.recording.recorder import record

PATIENCE = 600  # seconds; only something that isn't stopped takes as long


@pytest.fixture(scope="module")
def llama():
    return build(small.llama)


@pytest.fixture
def impatient(monkeypatch):
    """A limit of one second."""
    monkeypatch.setattr(checking, "SECONDS", 1)


def run_without_grad(loop):
    return torch.no_grad()(loop)


# -- right loops ---------------------------------------------------------------------------------


@pytest.mark.parametrize("loop", unusual_loops.RIGHT, ids=lambda loop: loop.__name__)
@pytest.mark.parametrize("n_prompt", [1, 6])
def test_an_unusual_right_loop_passes(llama, loop, n_prompt):
    verdict = judge(run_without_grad(loop), llama, small.prompt(n_prompt))
    assert verdict.passed, verdict


@pytest.mark.parametrize("kind", [small.gpt2, small.gpt_neox, small.deepseek_v3])
@pytest.mark.parametrize("which", range(4))
def test_an_unusual_right_loop_passes_on_any_architecture(kind, which):
    for loop in unusual_loops.RIGHT[which::4]:
        verdict = judge(run_without_grad(loop), build(kind), small.prompt(6), 6)
        assert verdict.passed, f"{loop.__name__}: {verdict}"


def test_layers_that_use_the_keys_of_others_pass():
    verdict = check(loops.right, build(small.gemma3n), small.prompt(7), 4)
    assert verdict.passed, verdict


def test_guesses_are_a_remark_with_the_rows_spent_and_the_passes_saved(llama):
    at_random = run_without_grad(unusual_loops.guesses_at_random)
    verdict = judge(at_random, llama, small.prompt(6))
    assert verdict.headline.endswith("; 1 to 4 rows a step")
    assert verdict.remarks == (
        "23 rows more than needed: 23 guesses turned out wrong",
        "11 passes of the model for 12 new tokens: 1 pass saved",
    )
    looped = small.plain_loop(llama, small.prompt(6), 12)

    def knows(model, ids, n):
        if ids.shape[1] != 6:
            return loops.right(model, ids, n)
        out = model(looped[:, :-1], use_cache=True)
        return torch.cat([looped[:, :-1], out.logits[:, -1:].argmax(-1)], dim=1)

    assert judge(run_without_grad(knows), llama, small.prompt(6)).remarks == (
        "1 pass of the model for 12 new tokens: 11 passes saved",
    )


def test_the_verdict_says_how_far_the_trial_went(llama):
    work = judge(run_without_grad(loops.right), llama, small.prompt(6)).findings[-1]
    assert work.says == "1 row a step; 17 rows in all; the model saw 17 tokens at most"


def test_a_cache_cut_at_32_is_found_by_the_longer_second_call(llama):
    @torch.no_grad()
    def loop(model, ids, n):
        cache = model(ids[:, :1], use_cache=True).cache
        for step in range(1, ids.shape[1] + n - 1):
            if cache.get_seq_length() > 32:
                for layer in cache.layers:
                    layer.values[:, :, 0] = 0
            out = model(ids[:, step : step + 1], cache=cache)
            if step >= ids.shape[1] - 1:
                ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], dim=1)
        return ids

    verdict = judge(loop, llama, small.prompt(6), 4)
    assert not verdict.passed and "in a second call, with a prompt of 40 tokens" in verdict.headline


def test_logits_that_were_not_seen_are_said_to_be(llama):
    verdict = judge(run_without_grad(unusual_loops.body_and_weight), llama, small.prompt(6))
    assert verdict.headline == "equal in tokens, keys and values; 1 row a step"
    assert verdict.findings[1].passed is None and "not seen" in verdict.findings[1].says


def test_hidden_states_are_compared_where_logits_are_not_seen():
    """Wrong by less than changes a token, behind all keys and values."""
    model = build(small.llama)

    def loop(model, ids, n):
        move = model.base_model.norm.register_forward_hook(lambda *call: 1.0005 * call[-1])
        try:
            return unusual_loops.body_and_weight(model, ids, n)
        finally:
            move.remove()

    assert not judge(run_without_grad(loop), model, small.prompt(6)).passed


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_a_model_in_16_bits_is_judged_in_32_and_put_back(dtype):
    model = build(small.llama, dtype)
    before = [(weight, weight.data_ptr(), weight.clone()) for weight in model.parameters()]

    @torch.no_grad()
    def blanks_a_value(model, ids, n):
        out = model(ids, use_cache=True)
        for _ in range(n):
            out.cache.layers[1].values[:, :, 2] = 0
            ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], dim=1)
            out = model(ids[:, -1:], cache=out.cache)
        return ids

    assert check(run_without_grad(loops.right), model, small.prompt(6), 4).passed
    verdict = check(blanks_a_value, model, small.prompt(6), 4)
    assert not verdict.passed and "value of position 2" in verdict.headline, verdict
    for weight, where, values in before:
        assert weight.data_ptr() == where and torch.equal(weight, values)


# -- wrong loops ---------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:coroutine")
@pytest.mark.parametrize("loop", unusual_loops.WRONG, ids=lambda loop: loop.__name__)
def test_an_unusual_mistake_is_given_its_name(llama, loop):
    cause, says = unusual_loops.WRONG[loop]
    is_plain = loop in (unusual_loops.yields, unusual_loops.awaited, unusual_loops.takes_two)
    torch.manual_seed(0)
    verdict = judge(loop if is_plain else run_without_grad(loop), llama, small.prompt(6))
    assert not verdict.passed and verdict.cause == cause, verdict
    assert says in verdict.headline and verdict.advice, verdict


def test_a_guess_that_was_taken_back_is_not_blamed_for_what_is_wrong_later(llama):
    @torch.no_grad()
    def loop(model, ids, n):
        out = model(ids, use_cache=True)
        for step in range(n):
            best, other = out.logits[:, -1:].topk(2).indices.unbind(-1)
            ids = torch.cat([ids, best], dim=1)
            if step == 1:
                model(other, cache=out.cache)
                out.cache.crop(-1)
            if step == 5:
                out.cache.layers[1].values[:, :, 2] = 0
            out = model(best, cache=out.cache)
        return ids

    verdict = judge(loop, llama, small.prompt(6))
    assert verdict.cause == "not recognised" and verdict.step == 7, verdict
    assert (verdict.layer, verdict.position) == (1, 2)


def test_what_the_finished_steps_show_is_told_before_the_error(llama):
    @torch.no_grad()
    def loop(model, ids, n):
        out = model(ids, use_cache=True)
        values = out.cache.layers[1].values
        out.cache.layers[1].values = values.roll(1, dims=2)
        model(ids[:, -1:], cache=out.cache)
        raise RuntimeError("later")

    @torch.no_grad()
    def drops_a_write(model, ids, n):
        cache = model(ids, use_cache=True).cache
        cache = model(torch.tensor([[91]]), cache=cache).cache
        layer = cache.layers[2]
        layer.keys, layer.values = layer.keys[:, :, :-1], layer.values[:, :, :-1]
        model(torch.tensor([[21]]), cache=cache)
        model(torch.tensor([[3, 4, 5]]), cache=cache)
        raise RuntimeError("shapes")

    verdict = judge(loop, llama, small.prompt(6))
    assert verdict.headline.endswith("; your loop then raised RuntimeError: later")
    assert not verdict.headline.startswith("your loop")
    verdict = judge(drops_a_write, llama, small.prompt(6))
    assert verdict.step == 2 and "then raised RuntimeError" in verdict.headline, verdict


def test_a_guess_that_could_still_be_taken_back_is_no_mistake_before_an_error(llama):
    @torch.no_grad()
    def loop(model, ids, n):
        out = model(ids, use_cache=True)
        model(out.logits[:, -1:].topk(2).indices[..., 1], cache=out.cache)
        raise OSError("no crop")

    verdict = judge(loop, llama, small.prompt(6))
    assert verdict.cause == "raised" and verdict.headline == "your loop raised OSError: no crop"


def test_only_the_learners_own_lines_are_shown(llama):
    def loop(model, ids, n):
        with torch.enable_grad():
            out = model(ids, use_cache=True)
        return copy.deepcopy(out.cache)

    shown, advice = judge(loop, llama, small.prompt(6)).advice.splitlines()
    assert shown.endswith("return copy.deepcopy(out.cache)")
    assert advice.endswith("write @torch.no_grad() over your loop.")


@pytest.mark.parametrize("draw", [lambda: torch.rand(1), random.random, np.random.rand])
def test_random_numbers_are_noticed_wherever_they_come_from(llama, draw):
    @torch.no_grad()
    def loop(model, ids, n):
        draw()
        return unusual_loops.second_best(model, ids, n)

    assert judge(loop, llama, small.prompt(6)).headline.endswith("random numbers were drawn")
    quiet = judge(run_without_grad(unusual_loops.second_best), llama, small.prompt(6))
    assert quiet.cause == "not greedy" and quiet.headline.endswith("had the highest score")


def test_random_numbers_that_change_nothing_are_no_mistake(llama):
    @torch.no_grad()
    def loop(model, ids, n):
        torch.rand(3)
        return loops.right(model, ids, n)

    assert judge(loop, llama, small.prompt(6)).passed


def test_a_loop_that_breaks_the_model_gets_a_verdict():
    @torch.no_grad()
    def loop(model, ids, n):
        out = loops.right(model, ids, n)
        model.model.layers = model.model.layers[:0]
        return out

    verdict = check(loop, small.llama(), small.prompt(6), 4)
    assert not verdict.passed and "in a second call" in verdict.headline, verdict


def test_rounding_that_a_right_loop_shows_too_is_no_mistake(llama, monkeypatch):
    """As if this machine rounded more coarsely."""
    monkeypatch.setattr("kvviz.checking.loop_reference.GATE", 1e-7)
    verdict = check(run_without_grad(loops.in_chunks), llama, small.prompt(6), 6)
    assert verdict.passed, verdict


# -- it always ends ------------------------------------------------------------------------------


def spins(model, ids, n):
    while True:
        pass


def sleeps(model, ids, n):
    time.sleep(2 * PATIENCE)


def swallows(model, ids, n):
    while True:
        try:
            time.sleep(0.01)
        except:  # noqa: E722
            pass


@pytest.mark.parametrize("loop", [spins, sleeps, swallows])
def test_an_endless_loop_is_stopped(llama, impatient, loop):
    start = time.monotonic()
    verdict = judge(loop, llama, small.prompt(6))
    assert verdict.cause == "endless loop"
    assert re.search(r"it did not end within \d+ seconds?;", verdict.headline)
    assert "called the model 0 times" in verdict.headline and time.monotonic() - start < PATIENCE


def test_an_endless_loop_is_stopped_outside_the_main_thread(llama, impatient):
    found = []
    work = threading.Thread(target=lambda: found.append(judge(spins, llama, small.prompt(6))))
    work.start()
    work.join(PATIENCE)
    assert found and found[0].cause == "endless loop"


def test_a_timer_that_ran_before_goes_on(llama):
    signal = pytest.importorskip("signal")
    if not hasattr(signal, "setitimer"):
        pytest.skip("this system has no timers")
    handler = signal.signal(signal.SIGALRM, lambda *_: None)
    try:
        signal.setitimer(signal.ITIMER_REAL, 10 * PATIENCE)
        judge(run_without_grad(loops.right), llama, small.prompt(6))
        assert PATIENCE < signal.getitimer(signal.ITIMER_REAL)[0] < 10 * PATIENCE
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, handler)


# -- the entrance --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "says"),
    [
        (torch.ones(1, 4), "expected whole numbers .* got torch.float32"),
        (torch.tensor([[1, 2, 101]]), "0 to 100, and got 101 at position 2"),
        (torch.tensor([[1, -2, 3]]), "0 to 100, and got -2 at position 1"),
        (torch.ones(4).long(), r"shape \(1, p\), and got \(4,\)"),
    ],
)
def test_ids_of_another_kind_are_refused(llama, ids, says):
    with pytest.raises(ValueError, match=says):
        check(loops.right, llama, ids, 4)


def test_models_of_another_kind_are_refused(llama):
    ids = small.prompt(3)
    with pytest.raises(
        TypeError, match="got Forge; for a Forge and its cache there is check_cache"
    ):
        check(loops.right, kv.Forge.small(), ids, 4)
    with pytest.raises(ValueError, match="LlamaModel has no head"):
        check(loops.right, llama.model, ids, 4)
    with pytest.raises(TypeError, match=r"loop\(model, ids, n\), and got NoneType"):
        check(None, llama, ids, 4)
    llama.train()
    try:
        with pytest.raises(ValueError, match=r"in training mode.* call model.eval\(\)"):
            check(loops.right, llama, ids, 4)
    finally:
        llama.eval()


def test_a_model_too_large_for_32_bits_is_refused(monkeypatch):
    monkeypatch.setattr("kvviz.checking.loop_inputs.MAX_BYTES", 1000)
    with pytest.raises(ValueError, match="judges in float32, which would take .* KiB"):
        check(loops.right, build(small.llama, torch.bfloat16), small.prompt(3), 4)


def test_the_number_of_tokens_counts_in_the_second_call_too(llama):
    def always_eight(model, ids, n):
        return model.generate(ids, max_new_tokens=8, do_sample=False)

    verdict = check(always_eight, llama, small.prompt(7), 8)
    assert verdict.cause == "too many tokens" and "in a second call" in verdict.headline


def test_a_tokenizer_that_is_none_is_no_mistake_of_the_loop(llama):
    with pytest.raises(TypeError, match="tokenizer: expected one of transformers, .* got 3"):
        check(lambda *given: None, llama, small.prompt(7), 8, tokenizer=3)


def test_a_loop_that_scales_what_is_held_is_told_so(llama):
    @torch.no_grad()
    def loop(model, ids, n):
        out = model(ids, use_cache=True)
        for _ in range(n):
            ids = torch.cat([ids, out.logits[:, -1:].argmax(-1)], dim=1)
            for layer in out.cache.layers:
                layer.values = layer.values * (1 + 3e-6)
            out = model(ids[:, -1:], cache=out.cache)
        return ids

    verdict = judge(loop, llama, small.prompt(6))
    assert verdict.cause == "held changed a little", verdict
    assert "the values that were held came back larger by 3 millionths" in verdict.headline


# -- what comes back, and what is refused by name --------------------------------------------------

FORMS = {
    "an array": lambda ids: ids.numpy(),
    "nested lists": lambda ids: ids.tolist(),
    "one axis": lambda ids: ids[0],
    "a list": lambda ids: ids[0].tolist(),
    "a list of numbers in tensors": lambda ids: [*ids[0]],
}


@pytest.mark.parametrize("form", FORMS.values(), ids=FORMS)
def test_ids_come_back_in_any_form(llama, form):
    @torch.no_grad()
    def loop(model, ids, n):
        return form(loops.right(model, ids, n))

    verdict = judge(loop, llama, small.prompt(6))
    assert verdict.headline == "equal in tokens, logits, keys and values; 1 row a step", verdict


def test_one_axis_is_taken_only_where_it_is_the_text(llama):
    short = run_without_grad(lambda *given: loops.right(*given)[0, :-2])
    assert judge(short, llama, small.prompt(6)).cause == "too few tokens"
    new = run_without_grad(lambda *given: loops.right(*given)[0, 6:])
    verdict = judge(new, llama, small.prompt(6))
    assert verdict.headline == "your loop returned (12,), expected ids of shape (1, 18)"


def test_a_models_own_method_is_no_loop(llama):
    for loop in (llama.generate, functools.partial(llama.generate, do_sample=False), llama):
        with pytest.raises(TypeError, match=r"loop: expected a function .* wrap it in a function"):
            check(loop, llama, small.prompt(6), 12)


def starts_at(first):
    @torch.no_grad()
    def loop(model, ids, n):
        cache, fed = None, ids
        for _ in range(n):
            held = ids.shape[1] - fed.shape[1]
            positions = torch.arange(held, ids.shape[1])[None] + first
            out = model(fed, position_ids=positions, cache=cache, use_cache=True)
            cache, fed = out.cache, out.logits[:, -1:].argmax(-1)
            ids = torch.cat([ids, fed], dim=1)
        return ids

    return loop


def test_a_shift_of_all_positions_is_harmless_to_the_text_where_distances_count(llama):
    verdict = judge(starts_at(50), llama, small.prompt(6))
    assert verdict.cause == "positions shifted" and not verdict.passed
    says = "harmless to the text: step 0: positions start at 50 instead of 0"
    assert verdict.headline.startswith(says) and "distances alone" in verdict.advice
    verdict = judge(starts_at(9), small.gpt2(), small.prompt(6))
    assert verdict.headline.startswith("step 0: positions start at 9 instead of 0")
    assert judge(starts_at(0), llama, small.prompt(6)).passed


@torch.no_grad()
def padded(model, ids, n):
    fed, mask = torch.nn.functional.pad(ids, (3, 0)), torch.arange(ids.shape[1] + 3)[None] >= 3
    positions, cache = (mask.cumsum(-1) - 1).clamp_min(0), None
    for _ in range(n):
        out = model(
            fed, attention_mask=mask.long(), position_ids=positions, cache=cache, use_cache=True
        )
        cache, fed = out.cache, out.logits[:, -1:].argmax(-1)
        positions = torch.tensor([[ids.shape[1]]])
        ids, mask = torch.cat([ids, fed], dim=1), torch.nn.functional.pad(mask, (0, 1), value=True)
    return ids


def test_padded_prompts_are_not_checked_and_that_is_said(llama):
    assert torch.equal(
        padded(llama, small.prompt(6), 9), small.plain_loop(llama, small.prompt(6), 9)
    )
    verdict = judge(padded, llama, small.prompt(6))
    assert verdict.cause == "padded prompt" and "3 padding tokens" in verdict.headline, verdict
    assert "padded prompts aren't checked" in verdict.headline and "can be right" in verdict.advice


def test_a_mask_that_hides_a_token_of_the_prompt_is_no_padding(llama):
    @torch.no_grad()
    def hides_the_first(model, ids, n):
        mask = (torch.arange(ids.shape[1]) > 0).long()[None]
        model(ids, attention_mask=mask, position_ids=torch.arange(ids.shape[1])[None])
        return loops.right(model, ids, n)

    assert judge(hides_the_first, llama, small.prompt(6)).cause != "padded prompt"


ROTATIONS = {
    "dynamic": (16, dict(factor=2.0)),
    "longrope": (
        97,
        dict(
            factor=4.0,
            short_factor=[1.0] * 11,
            long_factor=[2.0] * 11,
            original_max_position_embeddings=16,
        ),
    ),
}


@pytest.mark.parametrize("kind", ROTATIONS)
def test_a_rotation_that_depends_on_the_length_is_refused_past_it(kind):
    n_positions, rest = ROTATIONS[kind]
    rope = dict(rope_type=kind, rope_theta=1e4, **rest)
    model, loop = small.llama(n_positions, rope_parameters=rope), run_without_grad(loops.right)
    assert check(loop, model, small.prompt(6), 10).passed
    with pytest.raises(ValueError, match=r"ids: 17 tokens, .* more than 16\. .* plain rotation"):
        check(loop, model, small.prompt(6), 11)
    with record(model) as run:  # what a loop did is recorded as it was
        loop(model, small.prompt(6), 20)
    assert len(run) == 20 and max(run[-1].gaps.values()) < 1e-5
