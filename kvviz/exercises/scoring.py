"""Notebook 01's second exercise: the loop without a cache that scores one row at each step."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field, replace

import torch

from kvviz import count
from kvviz.arguments import check_whole
from kvviz.checking.loop_inputs import check_model, check_prompt
from kvviz.exercises.answers import to_tensor
from kvviz.exercises.feedback import Feedback, accept, reject, run_answer, with_hints
from kvviz.exercises.pictures import picture_of_run, picture_of_step
from kvviz.recording.recorder import record


@with_hints(
    "model.model runs the layers and model.lm_head turns rows into logits. Which of the two needs "
    "all the rows?",
    "model.model(ids, use_cache=False).last_hidden_state has a row for every position: (1, "
    "positions, 576). Give only the last one to model.lm_head.",
)
def score_last_row(function, model, ids, n: int = 12) -> Feedback:
    """Notebook 01: check the text of a loop without a cache that scores one row at each step.

    `function(model, ids, n)` takes ids (1, p) and returns them with n new ones: (1, p + n).

    Raises:
        TypeError: `model` isn't a model of `transformers`.
        ValueError: `ids` isn't one prompt of that model, or `n` isn't 1 to 1000.

    >>> kv.exercises.score_last_row(lambda model, ids, n: ids, model, ids)
    ✗ not right yet: your loop never called the model
    """
    check_model(model)
    check_prompt(ids, model)
    n, before = check_whole("n", n, least=1, most=1000), ids.clone()
    with _watch(model) as trial, torch.no_grad():
        out, problem = run_answer(function, model, ids, n)
    if problem and trial.fed and problem.state == "not done yet":
        return reject("your loop ran the model but returned nothing: return the longer ids")
    if problem:
        return problem
    if not torch.equal(ids, before):
        return reject("your loop changed the prompt it was given: build a longer tensor instead")
    expected = model.generate(ids, max_new_tokens=n, min_new_tokens=n, do_sample=False)
    out = to_tensor(out)
    mistake = _judge_loop(trial, out, expected, ids.shape[1])
    if mistake and trial.fed != count.rows(ids.shape[1], n, cached=False):
        return replace(mistake, picture=_draw_step_1(trial, model, expected[:, : ids.shape[1] + 1]))
    return mistake or accept(
        f"{_list_rows(trial.fed)} rows through the layers, {_list_rows(trial.scored)} scored: "
        f"{sum(trial.scored)} rows of logits instead of {sum(trial.fed)}, and the same text"
        + ("; now write the loop yourself, without generate" if trial.used_generate else ""),
        picture_of_run(trial.steps),
    )


@dataclass
class _Trial:
    """What went on in a learner's loop."""

    fed: list[int] = field(default_factory=list)  # tokens embedded, in each pass
    texts: list[torch.Tensor] = field(default_factory=list)  # their ids
    scored: list[int] = field(default_factory=list)  # rows given to the head, in each call
    read_cache: bool = False
    used_generate: bool = False
    steps: object = ()  # the recording: empty if the learner calls the model's parts one by one


@contextlib.contextmanager
def _watch(model):
    """Count what goes through the model inside the block, also when only parts of it are called."""
    trial, generate = _Trial(), model.generate

    def note_fed(_, args, kwargs, out):
        trial.fed.append(out.shape[-2])
        trial.texts.append([*args, *kwargs.values()][0])

    def note_scored(_, args, out):
        trial.scored.append(out.numel() // out.shape[-1])

    def note_generate(*args, **kwargs):
        trial.used_generate = True
        return generate(*args, **kwargs)

    handles = [
        model.get_input_embeddings().register_forward_hook(note_fed, with_kwargs=True),
        model.get_output_embeddings().register_forward_hook(note_scored),
    ]
    model.generate = note_generate
    try:
        with record(model, keep=()) as run:
            yield trial
    finally:
        del model.generate
        for handle in handles:
            handle.remove()
    trial.read_cache, trial.steps = any(step.held_before for step in run), run


def _draw_step_1(trial: _Trial, model, text):
    """The learner's step 1 beside the right one, which is fed the prompt and one token more."""
    if len(trial.steps) < 2:
        return None
    with record(model, keep=()) as right, torch.no_grad():
        for end in (-1, None):
            model(text[:, :end], use_cache=False)
    return picture_of_step(trial.steps[1], right[1])


def _judge_loop(trial: _Trial, out, expected, n_prompt: int) -> Feedback | None:
    """The first mistake in a learner's loop, or None."""
    n = expected.shape[1] - n_prompt
    if not trial.fed:
        return reject("your loop never called the model")
    if len(trial.fed) == n + 1:
        return reject(
            f"{n + 1} passes for {n} tokens: the prompt's own pass already gives the first new one"
        )
    if out is None or tuple(out.shape) != tuple(expected.shape):
        shape = "no tensor" if out is None else tuple(out.shape)
        return reject(
            f"expected the prompt and {n} new tokens, {tuple(expected.shape)}, but your loop "
            f"returned {shape}"
        )
    same_text = torch.equal(out, expected)
    return (
        _judge_fed(trial, expected[:, :n_prompt], n, same_text)
        or (None if same_text else _judge_text(out, expected))
        or _judge_scored(trial, n)
    )


def _judge_fed(trial: _Trial, prompt, n: int, same_text: bool) -> Feedback | None:
    fed, n_prompt = trial.fed, prompt.shape[1]
    found = f"tokens fed: {_list_rows(fed)}."
    only_newest = n > 1 and set(fed[1:]) == {1}
    if trial.read_cache or (only_newest and same_text):
        return reject(
            f"{found} Your loop reads from a cache. That comes in notebook 03. Here, feed the "
            "whole text and pass use_cache=False."
        )
    if only_newest:
        return reject(
            f"{found} From step 1 on, your loop fed one token while nothing was held, so the model "
            "never saw the rest of the text. Without a cache, feed all of it."
        )
    if len(set(fed)) == 1 and n > 1:
        return reject(
            f"{found} The text didn't grow. Feed the new token along with everything before it."
        )
    if n > 1 and not torch.equal(trial.texts[1].reshape(1, -1)[:, :n_prompt], prompt):
        return reject(
            "step 1 was fed a text that doesn't begin with the prompt: append the new token at the "
            "end"
        )
    if fed != count.rows(n_prompt, n, cached=False):
        return reject(f"{found} Feed the whole text at every step.")
    return None


def _judge_text(out, expected) -> Feedback:
    position = int((out != expected)[0].nonzero()[0])
    return reject(
        f"the text differs from position {position} on. Keep all rows up to the last layer, score "
        "the last one, and take the token with the highest score (argmax)."
    )


def _judge_scored(trial: _Trial, n: int) -> Feedback | None:
    scored = trial.scored
    if not scored:
        return reject(
            "the text is right, but nothing went through model.lm_head: score your row with it, "
            "so that the rows can be counted"
        )
    if scored == trial.fed:
        return reject(
            f"the text is right, but every row is scored: {_list_rows(scored)}. That makes "
            f"{sum(scored)} rows of logits, and {n} of them are used."
        )
    if scored != [1] * n:
        return reject(
            f"the text is right, but the rows scored are {_list_rows(scored)}: one at each of the "
            f"{n} steps is enough"
        )
    return None


def _list_rows(rows: list[int]) -> str:
    shown = ", ".join(map(str, rows[:4]))
    return f"{shown}, ..., {rows[-1]}" if len(rows) > 5 else ", ".join(map(str, rows))
