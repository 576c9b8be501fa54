"""Notebook 11's exercise: round keys and values to 4 bits, for a smaller shift of the loss."""

import numpy as np
import pytest
import small
import torch

from kvviz import exercises
from kvviz.exercises.bit_shift import measure_shift
from kvviz.forge import Forge, KVCache, KVEntry

LINES = {-2: "channel", -1: "token"}


@pytest.fixture(scope="module")
def model():
    return small.llama(n_positions=200, tie_word_embeddings=True)


@pytest.fixture(scope="module")
def ids():
    return small.prompt(150)


def with_zero_points(x, bits, axis):
    zero = x.amin(axis, keepdim=True).half()
    scale = ((x.amax(axis, keepdim=True) - zero) / (2**bits - 1)).half()
    whole = ((x - zero) / scale).round().clamp(0, 2**bits - 1)
    return whole.to(torch.uint8), scale, zero


def scale_alone(x, bits, axis):
    scale = x.abs().amax(axis, keepdim=True) / (2 ** (bits - 1) - 1)
    return (x / scale).round().to(torch.int8), scale


@pytest.mark.parametrize(
    "form",
    [
        lambda parts: parts,
        list,
        lambda parts: [part.numpy() for part in parts],
        lambda parts: ((parts[0].int() - 128).to(torch.int8), parts[1], parts[2] + 128 * parts[1]),
    ],
    ids=["tuple", "list", "numpy", "from -128"],
)
def test_zero_points_in_any_form_pass(model, ids, form):
    def answer(x, bits, axis):
        return form(with_zero_points(x, bits, axis))

    feedback = exercises.quantise(answer, model, ids, to_beat=9.0)
    assert feedback.passed and "at the same bytes" in feedback.message, feedback.message


def test_the_score_is_that_of_a_cache_whose_groups_were_rounded_once(model, ids):
    class Once(KVCache):
        """Rounds what has just become a full group, and never what is rounded already."""

        def update(self, layer, entry):
            end = entry.keys.shape[2]
            parts = [x.clone() for x in entry]
            if end % 64 == 0:
                for x, axis in zip(parts, (-2, -1), strict=True):
                    whole, scale = scale_alone(x[:, :, end - 64 :], 4, axis)
                    x[:, :, end - 64 :] = whole * scale
            super().update(layer, KVEntry(*parts))

    forge, losses = Forge.from_pretrained(model), []
    for cache in (KVCache(3), Once(3)):  # one token at a time
        logits = torch.cat([forge(token, cache) for token in ids.split(1, dim=1)], dim=1)
        cross_entropy = torch.nn.functional.cross_entropy
        losses.append(cross_entropy(logits[0, :-1], ids[0, 1:], reduction="none"))
    expected = float((losses[1] - losses[0]).abs().mean())
    assert expected > 1e-3
    assert measure_shift(scale_alone, model, ids) == pytest.approx(expected, rel=0.02)


def test_the_shift_grows_with_fewer_bits_and_passes_only_when_it_is_small_enough(model, ids):
    shifts = [
        measure_shift(lambda x, _, axis, n=n: with_zero_points(x, n, axis), model, ids)
        for n in (8, 4, 2)
    ]
    assert 0 < shifts[0] < shifts[1] / 4 and shifts[1] < shifts[2]
    assert exercises.quantise(with_zero_points, model, ids, to_beat=shifts[1] / 0.84).passed
    close = exercises.quantise(with_zero_points, model, ids, to_beat=shifts[1] / 0.86)
    assert close.state == "not right yet" and len(close.hints) == 2


def one_scale_for_all(x, bits, axis):
    scale = x.abs().max() / 7
    return (x / scale).round(), scale, 0


def other_axis(x, bits, axis):
    return with_zero_points(x, bits, -3 - axis)


def hard_coded_axis(x, bits, axis):
    return with_zero_points(x, bits, -1)


def in_float32(x, bits, axis):
    return tuple(part.float() for part in with_zero_points(x, bits, axis))


def whole_numbers_as_floats(x, bits, axis):
    whole, scale, zero = with_zero_points(x, bits, axis)
    return whole.float(), scale, zero


def whole_numbers_as_int64(x, bits, axis):
    whole, scale, zero = with_zero_points(x, bits, axis)
    return whole.long(), scale, zero


def seventeen_numbers(x, bits, axis):
    scale = x.abs().amax(axis, keepdim=True) / 2 ** (bits - 1)
    return (x / scale).round(), scale


def wraps(x, bits, axis):
    whole, scale, zero = with_zero_points(x, bits, axis)
    return whole.to(torch.int8), scale, zero


def zero_inside(x, bits, axis):
    whole, scale, zero = with_zero_points(x, bits, axis)
    return whole, scale, -(zero / scale).round()


def zero_forgotten(x, bits, axis):
    return with_zero_points(x, bits, axis)[:2]


def floats(x, bits, axis):
    return x, torch.ones(1).expand(x.amax(axis, keepdim=True).shape), 0


def divides_by_zero(x, bits, axis):
    return x / 0, x.amax(axis, keepdim=True), x.amin(axis, keepdim=True)


def without_keepdim(x, bits, axis):
    whole, scale, zero = with_zero_points(x, bits, axis)
    return whole, scale.squeeze(axis)[..., :5], zero


@pytest.mark.parametrize(
    ("wrong", "hint"),
    [
        (one_scale_for_all, "one scale for 22 lines: a single large number spoils it"),
        (other_axis, "axis -2 means a scale for each channel, and yours is for each token"),
        (hard_coded_axis, "axis -2 means a scale for each channel, and yours is for each token"),
        (in_float32, "take 8 bytes, and 4 are allowed"),
        (whole_numbers_as_floats, "right, but each takes 4 bytes, as float32"),
        (whole_numbers_as_int64, "right, but each takes 8 bytes, as int64"),
        (seventeen_numbers, "from -8 to 8, and 4 bits have 16 of them"),
        (wraps, "int8 ends at 127"),
        (zero_inside, "zero is added after the scale"),
        (zero_forgotten, "should be near x"),
        (floats, "expected whole numbers"),
        (divides_by_zero, "divided by 0"),
        (without_keepdim, "keepdim=True keeps the axis"),
        (lambda x, bits, axis: x, "expected three things, whole, scale and zero, but got a Tensor"),
        (lambda x, bits, axis: (x[..., :3].round(), 1, 0), "the shape of x"),
        (lambda x, bits, axis: ("a", 1, 0), "whole: expected a tensor of numbers"),
        (lambda x, bits, axis: x / None, "TypeError in line"),
    ],
)
def test_a_flaw_is_named_before_the_model_runs(model, ids, monkeypatch, wrong, hint):
    monkeypatch.setattr("kvviz.exercises.bits.measure_shift", None)
    feedback = exercises.quantise(wrong, model, ids, to_beat=9.0)
    assert feedback.state == "not right yet"
    assert hint in feedback.message, feedback.message


def toward_zero(x, bits, axis):
    scale = x.abs().amax(axis, keepdim=True) / (2 ** (bits - 1) - 1)
    return (x / scale).to(torch.int8), scale


def rounded_down(x, bits, axis):
    whole, scale, zero = with_zero_points(x, bits, axis)
    return ((x - zero) / scale).clamp(0, 2**bits - 1).to(torch.uint8), scale, zero


def clipped(x, bits, axis):
    top = 2 ** (bits - 1)
    scale = x.abs().amax(axis, keepdim=True) / top
    return (x / scale).round().clamp(-top, top - 1).to(torch.int8), scale


def one_bit_less(x, bits, axis):
    return with_zero_points(x, bits - 1, axis)


@pytest.mark.parametrize(
    ("weak", "hint"),
    [
        (scale_alone, "There's no zero point"),
        (toward_zero, "rounded toward zero: round() goes to the nearest"),
        (rounded_down, "rounded down: round() goes to the nearest"),
        (clipped, "The largest numbers are cut off"),
        (one_bit_less, "could be 16, but a line uses 8 on average"),
    ],
)
def test_a_shift_that_is_too_large_is_explained(model, ids, weak, hint):
    feedback = exercises.quantise(weak, model, ids, to_beat=1e-6)
    assert feedback.state == "not right yet"
    assert "your shift is" in feedback.message and hint in feedback.message, feedback.message


def test_attempts_stand_on_a_leaderboard_with_the_shift_to_beat(ids):
    model = small.llama(n_positions=200, tie_word_embeddings=True)
    for attempt in (scale_alone, with_zero_points):
        feedback = exercises.quantise(attempt, model, ids, to_beat=9.0)
    assert "#1 scale_alone" in repr(feedback) and "#2 with_zero_points" in repr(feedback)
    assert "a scale alone" in repr(feedback)  # the one to beat


def test_a_stub_is_not_done_yet(model, ids):
    def stub(x, bits, axis): ...

    feedback = exercises.quantise(stub, model, ids, to_beat=0.1)
    assert feedback.state == "not done yet" and len(feedback.hints) == 2
    nothing = exercises.quantise(lambda x, bits, axis: print(end=""), model, ids, to_beat=0.1)
    assert "returned nothing" in nothing.message


@pytest.mark.parametrize(
    ("n_tokens", "to_beat", "says"),
    [(64, 0.1, "ids: expected"), (80, 0, "to_beat: expected"), (80, np.nan, "to_beat: expected")],
)
def test_bad_input_is_refused_at_the_entrance(model, n_tokens, to_beat, says):
    with pytest.raises(ValueError, match=says):
        exercises.quantise(with_zero_points, model, small.prompt(n_tokens), to_beat=to_beat)


def test_a_scale_without_the_leading_axes_is_fine(model, ids):
    def answer(x, bits, axis):
        whole, scale, zero = with_zero_points(x, bits, axis)
        return (whole, scale[0, 0], zero[0, 0]) if x.shape[1] == 1 else (whole, scale, zero)

    assert exercises.quantise(answer, model, ids, to_beat=9.0).passed
