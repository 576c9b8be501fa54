"""Notebook 14: a loop that feeds guesses, keeps those that were right and crops the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

import torch

from kvviz.arguments import check_whole
from kvviz.checking.compare import count_common
from kvviz.checking.learner_code import attempt, describe_error, is_unwritten
from kvviz.checking.loop import check
from kvviz.checking.loop_evidence import read_ids
from kvviz.checking.loop_inputs import check_model, check_prompt, in_float32
from kvviz.checking.verdict import Verdict
from kvviz.exercises.feedback import NOT_DONE, Feedback, Hinted, reject, with_hints
from kvviz.words import pluralize

SECONDS = 60  # that one call of the learner's function may take


class _Pass(NamedTuple):
    """One pass: how many guesses it was fed, and how many of them were right."""

    guesses: int
    accepted: int


@with_hints(
    "A pass gives a choice for each row that it was fed. Which row's choice tells you whether the "
    "first guess was right? And the second?",
    "Set each guess beside the choice of the row in front of it, and accept guesses up to the "
    "first that differs: a running product, cumprod, finds it. cache.crop takes out what must not "
    "stay. Then count for yourself, on paper, for a pass with two guesses, one of them right: how "
    "many of the choices join the text, and how many rows leave the cache? What is fed if nothing "
    "was found? And how many guesses can still be used near the end?",
)
def generate_with_guesses(function, model, ids, n: int = 12, k: int = 4):
    """Notebook 14: `generate_with_guesses(model, ids, n, k)` returns the prompt and n new tokens.

    Each pass is fed the newest token and at most k guesses. `kv.check` judges the loop; then it's
    called with 1 and 0 guesses, too, to see whether guesses are made, and whether they help.

    Args:
        function: takes ids (1, p), n and k, and returns (1, p + n).
        model, ids, n: as for `kv.check`. To see whether passes are saved, the text has to repeat
            itself.
        k: the most guesses in a pass, at least 2.

    Raises:
        TypeError, ValueError: a model, a prompt or a number that can't be used.

    >>> kv.exercises.generate_with_guesses(lambda model, ids, n, k: ids, model, ids).passed
    False
    """
    check_model(model)
    check_prompt(ids, model)
    n, k = check_whole("n", n, least=3, most=1000), check_whole("k", k, least=2, most=1000)
    if is_unwritten(function):
        return NOT_DONE

    def loop(model, ids, n):
        return function(model, ids, n, k)

    verdict = check(loop, model, ids, n)
    if not verdict.passed:
        return verdict
    with torch.no_grad(), in_float32(model):
        return _judge_guesses(function, model, ids, n, k, verdict)


def _judge_guesses(function, model, ids, n, k, verdict: Verdict) -> Feedback | Hinted | Verdict:
    """What a loop with the right text does with its guesses, for k, 1 and 0."""
    text, passes, problem = _run(function, model, ids, n, k)
    problem = problem or _find_waste(passes, text, ids.shape[1], n) or _find_too_many(passes, k)
    if problem:
        return reject(f"with k={k}, the text is right, but {problem}")
    for fewer in (1, 0):
        other, few, problem = _run(function, model, ids, n, fewer)
        if not problem and other != text:
            problem = "the text is another one: guesses must never change it"
        if problem := problem or _find_too_many(few, fewer):
            return reject(f"k={k} is right; with k={fewer}, {problem}")
    guesses, accepted = (sum(each) for each in zip(*passes, strict=True))
    said = f"{accepted} of {pluralize(guesses, 'guess', 'guesses')} accepted; also right for k=1 "
    return replace(verdict, remarks=(*verdict.remarks, said + "and k=0"))


def _run(function, model, ids, n, k) -> tuple[list[int], list[_Pass], str | None]:
    """The text of one call, what each pass was fed, and what went wrong in it."""
    from kvviz.recording.recorder import record

    with record(model, keep=()) as run:
        called = attempt(function, model, ids.clone(), n, k, seconds=SECONDS)
    if called.error is not None:
        return [], [], f"your function raised {describe_error(called.error)}"
    text = read_ids(called.result, ids, ids.shape[1])
    if not isinstance(text, torch.Tensor) or text.ndim != 2:
        return [], [], "your function returned no text: return the prompt and the new tokens"
    text = text[0].tolist()
    return text, _list_passes(run, text, ids.shape[1]), None


def _list_passes(run, text: list[int], n_prompt: int) -> list[_Pass]:
    """For each pass, the tokens fed that nobody had chosen yet, and those that were right."""
    passes, chosen = [], n_prompt
    for step in run:
        fed, held = step.token_ids[0].tolist(), step.held_before
        right, end = held + count_common(fed, text[held:]), held + len(fed)
        passes.append(_Pass(max(0, end - chosen), max(0, right - chosen)))
        chosen = max(chosen, right + 1)
    return passes


def _find_too_many(passes: list[_Pass], k: int) -> str | None:
    for number, each in enumerate(passes):
        if each.guesses > k:
            came = pluralize(each.guesses, "guess", "guesses")
            return f"pass {number} was fed {came}: feed at most k"
    return None


def _find_waste(passes: list[_Pass], text: list[int], n_prompt: int, n: int) -> str | None:
    """What keeps guesses from saving passes, in a text where they could."""
    guesses, accepted = (sum(each) for each in zip(*passes, strict=True))
    could = _count_findable(text, n_prompt)
    if not guesses:
        return "no pass was fed a guess: look up what followed the last tokens before, and feed it"
    if not could:
        return None
    if not accepted:
        return (
            f"none of your {pluralize(guesses, 'guess', 'guesses')} was right, and this text does "
            "repeat itself. A guess is what came after the last tokens where they stood before"
        )
    if len(passes) >= n:
        return (
            f"{len(passes)} passes for {n} new tokens save none, although "
            f"{pluralize(accepted, 'guess', 'guesses')} turned out right. An accepted guess is in "
            "the cache already: go on after it"
        )
    return None


def _count_findable(text: list[int], n_prompt: int) -> int:
    """How many new tokens are what followed the last two, or the last one, where they stood first.

    The first new token comes from the prompt's own pass, so no guess is needed for it.
    """
    found = 0
    for end in range(n_prompt + 1, len(text) - 1):
        for size in (2, 1):
            starts = range(end - size)
            start = next((i for i in starts if text[i : i + size] == text[end - size : end]), None)
            if start is not None:
                found += text[start + size] == text[end]
                break
    return found
