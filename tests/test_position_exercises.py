"""Notebook 09: stub not done, solution passes, each typical wrong answer has its own hint."""

import numpy as np
import pytest
import torch

from kvviz import exercises
from kvviz.exercises.conversation_edits import EDITS, is_usable
from kvviz.forge import Forge, KVEntry


def stub(*_): ...


# -- move ----------------------------------------------------------------------------------------


def rotate(x, positions, frequencies):
    angles = positions[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x.chunk(2, dim=-1)
    return torch.cat([first * cos - second * sin, second * cos + first * sin], dim=-1)


def rotate_neighbours(x, positions, frequencies):
    angles = positions[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    first, second = x[..., ::2], x[..., 1::2]
    return torch.stack([first * cos - second * sin, second * cos + first * sin], -1).flatten(-2)


def rotate_alike(x, positions, frequencies):
    return rotate(x, positions, torch.ones_like(frequencies))


def rotate_degrees(x, positions, frequencies):
    return rotate(x, positions, torch.deg2rad(frequencies))


def rotate_to_degrees(x, positions, frequencies):
    return rotate(x, positions, torch.rad2deg(frequencies))


def solution(entry, from_, to, frequencies):
    return entry._replace(keys=rotate(entry.keys, to - from_, frequencies))


def in_two_rotations(entry, from_, to, frequencies):
    unrotated = rotate(entry.keys, -from_, frequencies)
    return rotate(unrotated, to, frequencies), entry.values


def with_complex_numbers(entry, from_, to, frequencies):
    turn = torch.polar(torch.ones(()), (to - from_)[:, None] * frequencies)
    turned = torch.complex(*entry.keys.chunk(2, dim=-1)) * turn
    return [torch.cat([turned.real, turned.imag], dim=-1), entry.values]


def in_place(entry, from_, to, frequencies):
    entry.keys.copy_(rotate(entry.keys, to - from_, frequencies))
    from_.zero_()
    return entry


def in_numpy(*given):
    return [part.double().numpy() for part in solution(*given)]


@pytest.mark.parametrize(
    "right", [solution, in_two_rotations, with_complex_numbers, in_place, in_numpy]
)
def test_keys_are_moved_in_any_way_that_is_right(right):
    feedback = exercises.move(right)
    assert feedback.passed and feedback.hints == ()


def test_move_is_not_done_yet_and_its_hints_are_folded():
    feedback = exercises.move(stub)
    assert feedback.state == "not done yet" and len(feedback.hints) == 2
    assert feedback._repr_html_().count("<details>") == 2


@pytest.mark.parametrize(
    ("positions", "turn", "hint"),
    [
        (lambda from_, to: to * 0, rotate, "the keys are where they were"),
        (lambda from_, to: to, rotate, "already rotated by from_, so rotating by `to` on top"),
        (lambda from_, to: from_ - to, rotate, "Check the sign"),
        (lambda from_, to: -from_, rotate, "all at position 0"),
        (lambda from_, to: from_ + to, rotate, "how much further is it"),
        (lambda from_, to: (to - from_)[:1].expand(to.shape), rotate, "Each has its own from_"),
        (lambda from_, to: to - from_, rotate_alike, "a frequency of its own"),
        (lambda from_, to: to - from_, rotate_degrees, "nothing to convert"),
        (lambda from_, to: to - from_, rotate_to_degrees, "nothing to convert"),
        (lambda from_, to: to.sort().values - from_, rotate, "you sorted `to`"),
        (lambda from_, to: to - from_, rotate_neighbours, "your pairs are neighbours"),
        (lambda from_, to: to, rotate_neighbours, "your pairs are neighbours"),
        (lambda from_, to: from_ - to, rotate_neighbours, "your pairs are neighbours"),
        (lambda from_, to: 2 * to, rotate, "is furthest off"),
        (lambda from_, to: (to - from_) + 1e-2, rotate, "is furthest off"),
    ],
)
def test_each_wrong_way_to_move_has_its_own_hint(positions, turn, hint):
    def move(entry, from_, to, frequencies):
        return entry._replace(keys=turn(entry.keys, positions(from_, to), frequencies))

    feedback = exercises.move(move)
    assert feedback.state == "not right yet" and hint in feedback.message, feedback


def move_values_too(entry, from_, to, frequencies):
    return KVEntry(*(rotate(part, to - from_, frequencies) for part in entry))


def return_keys_only(*given):
    return solution(*given).keys


def return_unmoved_keys_only(entry, *_):
    return entry.keys


def drop_an_axis(*given):
    keys, values = solution(*given)
    return keys[0], values


def swap(*given):
    return solution(*given)[::-1]


def sort_columns(entry, from_, to, frequencies):
    return [part[:, :, to.argsort()] for part in solution(entry, from_, to, frequencies)]


def rotate_by_a_model(entry, from_, to, frequencies):
    forge = Forge.small()
    forge.frequencies = 1 / 1e5 ** (torch.arange(0, 64, 2) / 64)  # as the default model's
    return entry._replace(keys=forge.rotate(entry.keys, forge.rotation(to - from_)))


def fail(entry, from_, to, frequencies):
    return rotate(entry.keys, to - from_, frequencies[1:])


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (move_values_too, "keys are right, but the values changed. Values carry no position"),
        (return_keys_only, "the keys are right. Return an entry"),
        (return_unmoved_keys_only, "moved 100 on: Return an entry"),
        (lambda *_: "keys", "return an entry, kv.KVEntry(keys, values); got str"),
        (lambda *_: ("keys", "values"), "got tuple"),
        (drop_an_axis, "expected keys of shape (1, 3, 6, 64), but got (3, 6, 64)"),
        (swap, "isn't right"),
        (sort_columns, "5 keys in any order: the keys are rotated right, but you sorted them"),
        (fail, "your function raised RuntimeError in line"),
        (rotate_by_a_model, "In this call, D is 14, not 64 as in the first call"),
        (rotate_by_a_model, "Take the angles from `frequencies`, here (7,), not from the model"),
    ],
)
def test_what_is_not_a_moved_entry_is_told_apart(wrong, says):
    feedback = exercises.move(wrong)
    assert feedback.state == "not right yet" and says in feedback.message, feedback


# -- edits ---------------------------------------------------------------------------------------

USABLE = {
    "another question follows": True,
    "a date is put in front": False,
    "its last 3 tokens are dropped": True,
    "one token in the middle is dropped": False,
    "all is numbered from 40 on": True,
    "the prefix stays at 0 to 11 and the question is numbered from 40 on": False,
}


def test_a_prefix_is_usable_where_neither_a_distance_nor_a_past_changes():
    assert {name: is_usable(name) for name in EDITS} == USABLE


@pytest.mark.parametrize("form", [bool, int, np.bool_, torch.tensor])
def test_edits_solved_in_any_form(form):
    assert exercises.edits({name: form(said) for name, said in USABLE.items()}).passed


@pytest.mark.parametrize("name", USABLE)
def test_each_wrong_answer_is_named_with_a_question_of_its_own(name):
    feedback = exercises.edits(USABLE | {name: not USABLE[name]})
    assert feedback.state == "not right yet" and len(feedback.hints) == 2
    assert feedback.message == f"right about 5 of 6. Not right: {name}. {EDITS[name].hint}"
    assert sum(edit.hint in feedback.message for edit in EDITS.values()) == 1


def test_edits_without_an_answer_are_not_done_yet_and_what_is_right_is_said():
    assert exercises.edits(dict.fromkeys(USABLE, ...)).state == "not done yet"
    half = dict(list(USABLE.items())[:4]) | dict.fromkeys(list(USABLE)[4:], ...)
    feedback = exercises.edits(half)
    assert feedback.state == "not done yet" and "right about 4 of 6" in feedback.message
    assert "all is numbered" in feedback.message and "a date" not in feedback.message


@pytest.mark.parametrize(
    ("answers", "says"),
    [
        ([True] * 6, "expected {edit: True or False}, but got"),
        ({"a question": True}, "there's no edit 'a question'"),
        ({"a date is put in front": "no"}, "a date is put in front: expected True or False"),
    ],
)
def test_answers_that_cannot_be_read_are_told_why(answers, says):
    feedback = exercises.edits(answers)
    assert feedback.state == "not right yet" and says in feedback.message


def test_a_function_that_fails_at_the_first_call_is_told_nothing_of_other_sizes():
    assert "In this call, D is" not in exercises.move(fail).message
