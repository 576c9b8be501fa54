"""An exercise takes a right answer in any form, and folds its hints until it's passed."""

import numpy as np
import pytest
import torch

from kvviz.exercises import answers
from kvviz.exercises.feedback import NOT_DONE, accept, reject, with_hints


@pytest.mark.parametrize("form", [6, 6.0, np.int64(6), np.float32(6), np.array([6])])
def test_a_number_in_any_form(form):
    assert answers.to_number(form) == 6 and isinstance(answers.to_number(form), int)
    assert answers.to_number(torch.tensor(form)) == 6


@pytest.mark.parametrize("other", ["6", None, True, [6], (6, 5), torch.ones(2), 6j])
def test_anything_else_is_no_number(other):
    assert answers.to_number(other) is None


def test_numbers_that_have_no_whole_part_to_take():
    assert answers.to_number(float("inf")) == float("inf")
    assert answers.to_number(float("nan")) != answers.to_number(float("nan"))
    assert answers.to_number(10**400) == 10**400 and answers.to_number(2.5) == 2.5


@pytest.mark.parametrize("form", [tuple, list, np.array, torch.tensor])
def test_three_numbers_in_any_form(form):
    assert answers.to_numbers(form([6, 6, 5]), 3) == (6, 6, 5)
    assert answers.to_numbers(form([6, 6]), 3) is None


@pytest.mark.parametrize("other", [6, "665", None, ("6", "6", "5"), [[6, 6, 5]], {6, 5, 4}])
def test_anything_else_is_no_three_numbers(other):
    assert answers.to_numbers(other, 3) is None


@pytest.mark.parametrize("form", [True, 1, np.True_, torch.tensor(True), torch.tensor([1]), 1.0])
def test_true_in_any_form(form):
    assert answers.to_bool(form) is True


@pytest.mark.parametrize("other", ["True", None, 2, [True], torch.ones(2), 0.5])
def test_anything_else_is_neither_true_nor_false(other):
    assert answers.to_bool(other) is None


@pytest.mark.parametrize("form", [list, np.array, torch.tensor])
@pytest.mark.parametrize("kind", [bool, int, float])
def test_a_mask_in_any_form(form, kind):
    mask = form([[kind(1), kind(0)], [kind(1), kind(1)]])
    assert answers.to_bools(mask, (2, 2)).tolist() == [[True, False], [True, True]]
    assert answers.to_bools(mask, (2, 3)) is None


@pytest.mark.parametrize("other", [[[2, 0], [1, 1]], "mask", None, [[1], [1, 1]], [["a", "b"]]])
def test_anything_else_is_no_mask(other):
    assert answers.to_bools(other, (2, 2)) is None


@with_hints("Count by hand <first>.", "Step k runs over p + k positions.")
def _check(feedback):
    return feedback


def test_hints_are_folded_one_inside_the_other_until_the_exercise_is_passed():
    for feedback in (_check(NOT_DONE), _check(reject("one step too many"))):
        small, large = (feedback._repr_html_().index(hint[:8]) for hint in feedback.hints)
        assert small < large and feedback._repr_html_().count("<details>") == 2
        assert "&lt;first&gt;" in feedback._repr_html_() and "Count" not in repr(feedback)
    assert not _check(accept("right")).hints and "<details>" not in accept("")._repr_html_()
