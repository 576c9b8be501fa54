"""Notebook 03: a second turn on a kept cache, judged by what each pass was fed."""

from __future__ import annotations

import torch

from kvviz.arguments import check_whole
from kvviz.checking.compare import GATE
from kvviz.checking.learner_code import attempt, describe_error, is_unwritten, own_frames
from kvviz.checking.loop_inputs import check_model, check_prompt, in_float32
from kvviz.checking.watchdog import TimeLimitReached
from kvviz.exercises.answers import to_tensor
from kvviz.exercises.chat import Chat, write_plainly
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, with_hints
from kvviz.exercises.pictures import picture_of_step
from kvviz.words import pluralize

SECONDS = 60  # that one call of the learner's function may take


@with_hints(
    "Count what the cache holds when turn one ends: the prompt, and each token that was fed. Is "
    "the token you chose last one of them?",
    "Turn one's last token was chosen but never fed, so it has no key and no value yet. In turn "
    "two, feed it and the message in one pass, torch.cat([newest, more], dim=1), with the same "
    "cache. From there on, turn two is turn one's loop.",
)
def two_turns(function, model, ids, more, n_new: int = 6) -> Feedback:
    """Notebook 03: `two_turns(model, ids, more, n_new, stop)` returns the text of both turns.

    The first turn answers the prompt `ids` (1, p), then the message `more` (1, m) is appended, and
    the second turn answers that. A turn has n_new tokens, or ends early with the token `stop`.
    Only what the cache doesn't hold yet is fed.

    Raises:
        TypeError, ValueError: a model, a prompt or a message that can't be used.

    >>> kv.exercises.two_turns(lambda *given: given[1], model, ids, ids[:, :3])
    ✗ not right yet: your function never called the model
    """
    check_model(model)
    check_prompt(ids, model)
    check_prompt(more, model)
    n_new = check_whole("n_new", n_new, least=1)
    if is_unwritten(function):
        return NOT_DONE
    remarks, first = {}, None
    with torch.no_grad(), in_float32(model):
        whole = write_plainly(model, ids, more, n_new, None)
        for what, n, stop in _list_cases(whole, n_new):
            chat = (
                whole if stop is None and n == n_new else write_plainly(model, ids, more, n, stop)
            )
            problem, step, run = _judge(function, model, ids, more, n, stop, chat)
            if problem is NOT_DONE:
                return problem
            if problem:
                right = "Without a stop token, both turns are right. " if first else ""
                picture = None if step is None else picture_of_step(run[step])
                return reject(f"{right}{what}{problem}", picture)
            remarks |= dict.fromkeys(_list_remarks(run, chat))
            first = first or run
    rows = ", ".join(map(str, first.rows))
    says = f"rows {rows}: turn two fed only what the cache didn't hold, and the text is the plain "
    says += "loop's, also where a stop token ends turn one early"
    return accept("; ".join([says, *remarks]), _draw_turns(first, whole))


def _draw_turns(run, chat: Chat):
    """The prompt, one row of each turn, and between them the steps where the message went in."""
    from kvviz.drawing.figures import draw_filmstrip

    ends = [step.held_after for step in run]
    message = next(i for i, end in enumerate(ends) if end >= chat.end_of_first + chat.n_more)
    steps = sorted({0, 1, message - 1, message, message + 1} & {*range(len(run))})
    return draw_filmstrip(run, steps=steps)


def _list_cases(whole: Chat, n_new: int):
    """(what to say first, n_new, stop): nothing stops, turn one stops early, one token a turn."""
    yield "", n_new, None
    first = whole.tokens[whole.n_prompt : whole.end_of_first]
    at = max(i for i in range(min(3, n_new)) if first[i] not in first[:i])
    yield f"With a stop token that ends turn one after {at + 1}: ", n_new, first[at]
    yield "With n_new=1: ", 1, None


def _judge(function, model, ids, more, n_new, stop, chat: Chat):
    """(what is wrong or None, in which step, the recording) of one call of the function."""
    from kvviz.recording.recorder import record

    given = ids.clone(), more.clone()
    with record(model, keep=("logits",)) as run:
        called = attempt(function, model, *given, n_new, stop, seconds=SECONDS)
    wrong, step = _find_wrong_step(run, chat)
    if (error := called.error) is not None:
        if isinstance(error, NotImplementedError) and not run:
            return NOT_DONE, None, run
        says = f"your function {_describe(error)}"
        return f"{wrong}; then {says}" if wrong else says, step, run
    if not run:
        nothing = called.result is None or called.result is Ellipsis
        return NOT_DONE if nothing else "your function never called the model", None, run
    if not (torch.equal(given[0], ids) and torch.equal(given[1], more)):
        return "your function changed the tokens it was given: build a longer tensor", None, run
    total = chat.text.shape[1]
    problem = wrong or _find_wrong_text(called.result, chat, run)
    if not problem and run.positions > total:
        problem = f"the text is right, but {run.positions} rows were computed for {total} tokens: "
        problem += "some were fed again"
    return problem, step, run


def _describe(error) -> str:
    if isinstance(error, TimeLimitReached):
        return f"did not end within {SECONDS} seconds: each turn has at most n_new tokens"
    frames = own_frames(error)
    where = f" in line {frames[-1].lineno}" if frames else ""
    return f"raised {describe_error(error)}{where}"


# -- what was fed ----------------------------------------------------------------------------------


def _find_wrong_step(run, chat: Chat) -> tuple[str | None, int | None]:
    """The first pass that was fed something held already, or not what comes next."""
    text, held = chat.tokens, []
    for step in run:
        fed, says = step.token_ids[0].tolist(), None
        held = held[: step.held_before] + fed
        if step.index and step.held_before == 0:
            says = _name_restart(fed, chat)
        elif held != text[: len(held)]:
            says = _name_fed(step.held_before, fed, chat, run.label)
        elif len(held) < len(text) and "logits" in step.kept:
            right = chat.logits[0, len(held) - 1]
            if not (step.logits[0] - right).abs().max() <= GATE * right.abs().max():
                says = "you fed the right tokens, but the logits differ from the plain loop's. "
                says += "Leave position_ids and masks to the model."
        if says:
            return f"step {step.index}: {says}", step.index
    return None, None


def _name_restart(fed, chat: Chat) -> str:
    """A pass that read from no cache, although there was one."""
    n, text, start = len(fed), chat.tokens, chat.end_of_first
    nothing = f"you fed {pluralize(n, 'token')} and the cache held nothing"
    if fed == text[: chat.n_prompt]:
        return (
            "the prompt was fed again, into an empty cache: turn one was run over again. Keep the "
            "cache, and start turn two from it."
        )
    if fed == text[:n]:
        whose = "turn one's cache" if n > start else "the cache of the step before"
        again = f"{min(n, start) - 1} of these were in {whose}: keep it"
        return f"{nothing}: the whole text so far. It's right, but recomputed: {again}."
    if chat.more in (fed, fed[1:]):
        return f"{nothing}, so the model never saw turn one. Go on with turn one's cache."
    return f"{nothing}. Pass the cache on from step to step, and from turn to turn."


def _name_fed(held: int, fed, chat: Chat, label) -> str:
    """A pass on the kept cache that was fed the wrong tokens."""
    text, start, n = chat.tokens, chat.end_of_first, len(fed)
    last, counts = label(text[start - 1]), f"the cache held {held} and you fed {n}"
    has_message = fed[-chat.n_more :] == chat.more or fed == chat.more[:n]
    if held == start - 1 and has_message and text[start - 1] not in fed[: n - chat.n_more]:
        return (
            f"{counts}, without turn one's last token, {last!r}. It was chosen but never fed, so "
            "the cache doesn't hold it, and every position after it is one too low."
        )
    if held == start and fed == text[start - 1 : start - 1 + n]:
        return f"{counts}, {last!r} among them, which the cache already held. Feed each token once."
    if held and fed == text[:n] and n > held:
        return f"{counts}, the whole text again. Feed only the tokens that the cache doesn't hold."
    if fed[-chat.n_more :] == chat.more and (
        length := chat.tell_length(held + n - chat.n_more, fed[: -chat.n_more])
    ):
        return length
    if has_message and n > chat.n_more:
        return (
            f"{counts}, more than the last token and the message. Feed only the tokens that the "
            "cache doesn't hold."
        )
    if held == start and fed == [chat.goes_on]:
        return (
            f"{label(fed[0])!r} was fed after {last!r}, where turn one ends. A turn ends after "
            "n_new tokens, or with the stop token, and then the message comes."
        )
    expected = repr(label(text[held])) if held < len(text) else "nothing more"
    return f"{counts}, beginning with {label(fed[0])!r}. What comes next is {expected}."


# -- what came back --------------------------------------------------------------------------------


def _find_wrong_text(result, chat: Chat, run) -> str | None:
    out, total = to_tensor(result), chat.text.shape[1]
    if result is None:
        return "your function returned nothing: return the text of both turns, in one tensor"
    if out is None or out.numel() != out.shape[-1]:
        got = tuple(out.shape) if out is not None else type(result).__name__
        return f"expected the text of both turns in one tensor, {(1, total)}, but got {got}"
    ours, text = out.flatten().tolist(), chat.tokens
    if ours == text:
        return None
    p, start, second = chat.n_prompt, chat.end_of_first, text[chat.end_of_first + chat.n_more :]
    if ours == [*text[:start], *second]:
        return "the message is missing from the text you returned"
    if ours in (text[p:], second, [*text[p:start], *second]):
        return "you returned the new tokens alone: return the prompt and the message too"
    for end in range(p + 1, len(ours) - chat.n_more + 1):
        if ours[end : end + chat.n_more] == chat.more and ours[:p] == text[:p]:
            if length := chat.tell_length(end, ours[p:end]):
                return length
    pairs = enumerate(zip(ours, text, strict=False))
    at = next((i for i, pair in pairs if pair[0] != pair[1]), min(len(ours), total))
    if at == min(len(ours), total):
        return f"your text has {pluralize(len(ours), 'token')}, expected {total}"
    came, right = run.label(ours[at]), run.label(text[at])
    return f"your text has {came!r} at position {at}, where the plain loop has {right!r}"


def _list_remarks(run, chat: Chat) -> list[str]:
    """What is right, and takes more passes than it needs."""
    fed = {step.held_before: step.fed for step in run}
    start, said = chat.end_of_first, []
    if any(fed.get(start + i) for i in range(1, chat.n_more)):
        said.append("you fed the message in pieces, which is right, but one pass would do")
    elif fed.get(start):
        said.append("turn one's last token went in by itself, though it could go with the message")
    return said
