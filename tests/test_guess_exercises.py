"""Notebook 14's loop that guesses: right in any style, and each waste of guesses is named."""

import pytest
import small
import torch
from guessing_loops import Guessing

from kvviz import exercises

K, N = 4, 12


@pytest.fixture(scope="module")
def model():
    return small.llama()


@pytest.fixture(scope="module")
def ids(model):
    """A prompt after which 12 new tokens take 9 passes."""
    text = small.plain_loop(model, small.prompt(8, seed=32), 16)
    return torch.cat([text, text[:, 4:14]], dim=1)


def look_up(text, k):
    for n in (2, 1):
        for end in range(n, len(text)):
            if text[end - n : end] == text[-n:]:
                return text[end : end + k]
    return []


def guess(model, text, k):
    return torch.tensor([look_up(text[0].tolist(), k)], dtype=torch.long)


class Solution(Guessing):
    """As the exercise wants it: `k` is given with each call."""

    def __init__(self, guess=guess):
        super().__init__(guess)

    def __call__(self, model, ids, n, k):
        self.k = k
        return super().__call__(model, ids, n)


class WithThePrompt(Solution):
    """Guesses go in with the prompt, too, as the library's do."""

    def fill(self, model, ids):
        return self.new_cache(model), ids

    def feed(self, text, guesses):
        self.prompt_is_fed, first = True, not getattr(self, "prompt_is_fed", False)
        return torch.cat([text if first else text[:, -1:], guesses], dim=1)

    def __call__(self, *given):
        self.prompt_is_fed = False
        return super().__call__(*given)

    def count(self, fed, best):
        n = len(self.last[0])
        return int((best[0, -n - 1 : -1] == self.last[0]).long().cumprod(0).sum()) if n else 0

    def extend(self, text, fed, best, n_right):
        n = len(self.last[0])
        choices = best[:, best.shape[1] - n - 1 :]
        return torch.cat([text, choices[:, : n_right + 1]], dim=1)

    def limit(self, left):
        return min(self.k, left - 1)

    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-(len(self.last[0]) - n_right))

    def __init__(self):
        def remember(model, text, k):
            self.last = guess(model, text, k)
            return self.last

        super().__init__(remember)


def as_a_list(model, ids, n, k):
    return Solution()(model, ids, n, k)[0].tolist()


@pytest.mark.parametrize("function", [Solution(), WithThePrompt(), as_a_list])
def test_a_right_loop_passes_in_any_style(model, ids, function):
    feedback = exercises.generate_with_guesses(function, model, ids, N, K)
    assert feedback.passed, feedback
    remarks = feedback.verdict.remarks
    assert any("passes saved" in remark for remark in remarks), remarks
    assert "guesses accepted; also right for k=1 and k=0" in remarks[-1]
    assert not feedback.hints


class NeverGuesses(Solution):
    def limit(self, left):
        return 0


class IgnoresK(Solution):
    def limit(self, left):
        return min(3, left - 1)


class AlwaysGuessesOne(Solution):
    def limit(self, left):
        return min(max(self.k, 1), left - 1)


class FailsWithoutGuesses(Solution):
    def limit(self, left):
        return super().limit(left) // min(self.k, 1)


class CropsAll(Solution):
    """Takes out all that it fed, keeps one token, and never gains any."""

    def extend(self, text, fed, best, n_right):
        return torch.cat([text, best[:, :1]], dim=1)

    def roll_back(self, kept, n_wrong, n_right):
        if n_wrong + n_right:
            kept.crop(-(n_wrong + n_right))


WASTED = {
    "no guesses": (NeverGuesses(), "but no pass was fed a guess"),
    "k ignored": (IgnoresK(), "k=4 is right; with k=1, pass "),
    "one too many at k=0": (AlwaysGuessesOne(), "with k=0, pass "),
    "an error at k=0": (FailsWithoutGuesses(), "with k=0, your function raised ZeroDivisionError"),
    "accepted ones cropped": (CropsAll(), "12 passes for 12 new tokens save none, although"),
    "always the same": (
        Solution(lambda m, text, k: torch.full((1, k), 7)),
        "this text does repeat",
    ),
}


@pytest.mark.parametrize(("function", "says"), WASTED.values(), ids=WASTED)
def test_each_waste_of_guesses_has_its_own_message(model, ids, function, says):
    feedback = exercises.generate_with_guesses(function, model, ids, N, K)
    assert feedback.state == "not right yet" and says in feedback.message, feedback
    assert len(feedback.hints) == 2


class KeepsWrongOnes(Solution):
    def roll_back(self, kept, n_wrong, n_right):
        pass


class NoBonus(Solution):
    def extend(self, text, fed, best, n_right):
        return torch.cat([text, best[:, : max(1, n_right)]], dim=1)


class GuessesPastTheEnd(Solution):
    def limit(self, left):
        return self.k


@pytest.mark.parametrize("function", [KeepsWrongOnes(), NoBonus(), GuessesPastTheEnd()])
def test_a_wrong_loop_gets_the_checks_verdict(model, ids, function):
    feedback = exercises.generate_with_guesses(function, model, ids, N, K)
    assert feedback.state == "not right yet" and feedback.verdict.cause not in (
        "",
        "not recognised",
    )
    assert len(feedback.hints) == 2


def test_no_passes_have_to_be_saved_where_nothing_repeats(model):
    ids = small.prompt(3, seed=5)
    text = small.plain_loop(model, ids, 3)[0].tolist()
    assert len({*text}) == len(text)
    function = Solution(lambda m, text, k: torch.full((1, k), 7))
    assert exercises.generate_with_guesses(function, model, ids, 3, K).passed


def test_a_stub_is_not_done_yet_and_bad_input_is_named(model, ids):
    def stub(model, ids, n, k): ...

    assert exercises.generate_with_guesses(stub, model, ids).state == "not done yet"
    for k in (1, 0, 2.5):
        with pytest.raises(ValueError, match="k: expected"):
            exercises.generate_with_guesses(stub, model, ids, N, k)
