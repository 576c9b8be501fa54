"""Notebook 14: a kept cache made ready for the next turn, judged by what is fed and held."""

from __future__ import annotations

import contextlib
from dataclasses import dataclass

import torch

from kvviz.checking.compare import GATE, count_common
from kvviz.checking.learner_code import attempt, describe_error, is_unwritten, own_frames
from kvviz.checking.loop_inputs import check_model, check_prompt, in_float32
from kvviz.exercises.answers import to_tensor
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, with_hints
from kvviz.exercises.next_turn_words import describe_pass, describe_start
from kvviz.exercises.pictures import picture_of_step
from kvviz.words import pluralize

LEAST = 6  # tokens, so that something can be edited in the middle
SECONDS = 60  # that one call of the learner's function may take


@dataclass(frozen=True)
class Turn:
    """One case: the tokens whose keys the cache holds, and the new turn's whole text."""

    name: str
    held: list[int]
    new: list[int]

    @property
    def n_common(self) -> int:
        """How many tokens, from the first, are the same in both."""
        return count_common(self.held, self.new)

    @property
    def n_kept(self) -> int:
        """How many of them can be kept: one token has to be fed."""
        return min(self.n_common, len(self.new) - 1)


@with_hints(
    "Which keys and values of the cache are those of the new text? A token's depend on each token "
    "before it. And what does a pass need at the least?",
    "Compare the two texts token by token, from the first on: the keys and values of what both "
    "begin with can stay, and cache.crop takes the others out. How many are those? Where does what "
    "the cache doesn't hold begin? And what will you feed if it already holds the whole text?",
)
def next_turn(function, model, ids) -> Feedback:
    """Notebook 14: `next_turn(model, cache, held, ids)` makes a kept cache hold a new text.

    `held` is a list of the tokens whose keys and values the cache holds, and `ids` (1, q) is the
    new turn's whole text. The function returns the logits of its last row, or the model's output.
    Afterwards the cache holds exactly `ids`, and as few rows as possible were computed. It's tried
    with six pairs of texts, made from `ids` (1, p).

    Raises:
        TypeError, ValueError: a model or a text that can't be used; fewer than 6 tokens; a model
            with layers that can't be cropped.

    >>> kv.exercises.next_turn(lambda model, cache, held, ids: model(ids), model, ids)
    ✗ not right yet: the text goes on: you started again: 6 rows were computed, and 2 were needed...
    """
    check_model(model)
    check_prompt(ids, model)
    if ids.shape[1] < LEAST:
        raise ValueError(f"ids: expected at least {LEAST} tokens, and got {ids.shape[1]}")
    if is_unwritten(function):
        return NOT_DONE
    size, runs = model.get_input_embeddings().weight.shape[0], []
    with torch.no_grad(), in_float32(model):
        _check_layers(model(ids[:, :1], use_cache=True).cache, model)
        for turn in _list_turns(ids[0].tolist(), size):
            run, problem = _judge(function, model, turn)
            if problem is NOT_DONE:
                return problem
            if problem:
                picture = picture_of_step(run[0]) if run else None
                return reject(f"{turn.name}: {problem}", picture)
            runs.append(run)
    rows = ", ".join(str(sum(run.rows)) for run in runs)
    says = f"{rows} rows for the six texts, no more than needed, and each time the cache holds the "
    says += "new text and nothing else"
    if (passes := sum(map(len, runs))) > len(runs):
        says += f". But it took {passes} passes, where one for each text would do"
    return accept(says, picture_of_step(runs[1][0]))


def _check_layers(cache, model):
    layers = getattr(cache, "layers", [])
    if not layers or any(getattr(each, "is_sliding", 0) or not _entries(each) for each in layers):
        raise ValueError(
            f"model: {type(model).__name__} has layers whose cache can't always be cropped: take "
            "one with full attention in every layer"
        )


def _entries(layer) -> tuple:
    entries = getattr(layer, "keys", None), getattr(layer, "values", None)
    return () if None in map(type, entries) or entries[0] is None else entries


def _list_turns(text: list[int], size: int) -> list[Turn]:
    """Each way a new turn's text can differ from what is held."""
    middle, n = len(text) // 2, len(text)
    edited, first = [*text], [*text]
    for at in (middle, n - 2):  # two, so that the tokens still equal are no length
        edited[at] = (text[at] + 1) % size
    first[0] = (text[0] + 1) % size
    return [
        Turn("the text goes on", text[: n - max(2, n // 3)], text),
        Turn("tokens in the middle were edited", text, edited),
        Turn("the very first token was edited", text, first),
        Turn("another text", text, [(token + 1) % size for token in text[:-1]]),
        Turn("the end was deleted", text, text[: middle + 1]),
        Turn("the same text again", text, text),
    ]


def _judge(function, model, turn: Turn):
    """The recording of one call, and what is wrong with it or None."""
    from kvviz.recording.recorder import record

    held, new = (torch.tensor([tokens]) for tokens in (turn.held, turn.new))
    cache = model(held, use_cache=True).cache
    right = model(new, use_cache=True)
    given = new.clone()
    with record(model, keep=("logits",)) as run:
        called = attempt(function, model, cache, [*turn.held], given, seconds=SECONDS)
    if called.error is not None:
        return run, _describe_error(called.error, turn, run, cache.get_seq_length())
    if not run:
        nothing = called.result is None or called.result is Ellipsis
        return run, NOT_DONE if nothing else "your function never called the model"
    if not torch.equal(given, new):
        return run, "your function changed the tokens it was given"
    problem = describe_pass(run, turn) or _compare_cache(cache, right.cache, turn)
    return run, problem or _compare_result(called.result, right.logits[0, -1])


def _describe_error(error, turn: Turn, run, held: int) -> str:
    """What was raised, with `held` tokens in the cache."""
    if isinstance(error, NotImplementedError) and not run:
        return NOT_DONE
    is_empty = getattr(error, "cause", "") == "nothing fed"
    if is_empty and held < len(turn.new):
        says = f"you fed no token, and the new text has {len(turn.new)}"
        is_cropped = held < len(turn.held)
        return f"{says}. {describe_start(held)}" if is_cropped else f"{says}: feed what's missing"
    if is_empty and held > turn.n_common:
        return f"you fed no token, and the cache still held {held}: crop it first"
    if is_empty:
        return (
            f"you fed no token. The cache already held all {len(turn.new)}, but without a pass "
            "there are no logits: keep one token fewer, and feed it again"
        )
    frames = own_frames(error)
    where = f" in line {frames[-1].lineno}" if frames else ""
    says = f"your function raised {describe_error(error)}{where}"
    if isinstance(error, ValueError) and "`crop`" in says and "positive" in says:
        return (
            f"cache.crop raised ValueError{where}: it takes minus the number of tokens to take "
            "out, not how many are to stay"
        )
    return says


def _compare_cache(cache, right, turn: Turn) -> str | None:
    """What is wrong with what the given cache holds afterwards."""
    now, expected = cache.get_seq_length(), len(turn.new)
    if now != expected:
        return (
            f"afterwards, the cache you were given holds {pluralize(now, 'token')}, and the new "
            f"text has {expected}. Crop this one and pass it on, and no copy of it"
        )
    for number, (ours, others) in enumerate(zip(cache.layers, right.layers, strict=True)):
        for mine, good in zip(_entries(ours), _entries(others), strict=True):
            gaps = (mine - good).abs().amax((0, 1, 3)) / good.abs().max()
            wrong = (~(gaps <= GATE)).nonzero()
            if len(wrong):
                return (
                    f"you fed the right tokens, but layer {number} of the cache differs from a "
                    f"fresh pass, first at position {int(wrong[0])}. Leave position_ids and masks "
                    "to the model"
                )
    return None


def _compare_result(result, right) -> str | None:
    """What is wrong with the logits that came back."""
    logits = to_tensor(getattr(result, "logits", result))
    if logits is None or not logits.ndim or logits.shape[-1] != len(right) or logits.numel() == 0:
        got = type(result).__name__ if logits is None else tuple(logits.shape)
        return f"expected the logits of the last row, with {len(right)} numbers, and got {got}"
    ours = logits.reshape(-1, len(right)).float()
    with contextlib.suppress(RuntimeError):
        if bool((ours[-1] - right).abs().max() <= 10 * GATE * right.abs().max()):
            return None
    return "the cache is right, but what you returned isn't the logits of the last row"
