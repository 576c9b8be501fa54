"""Notebook 03: a second turn on a kept cache, judged by what each pass was fed."""

from __future__ import annotations

import torch

from kvviz.arguments import check_whole
from kvviz.checking.compare import GATE
from kvviz.checking.learner_code import attempt, describe_error, is_unwritten, own_frames
from kvviz.checking.loop_inputs import check_model, check_prompt, check_rotation, in_float32
from kvviz.checking.loop_watch import Watch
from kvviz.checking.watchdog import TimeLimitReached
from kvviz.exercises.chat import Chat, write_plainly
from kvviz.exercises.feedback import NOT_DONE, Feedback, accept, reject, with_hints
from kvviz.exercises.pictures import picture_of_step
from kvviz.exercises.turn_results import count_recomputed, find_wrong_text, list_remarks
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
    n_new = check_whole("n_new", n_new, least=1, most=1000)
    check_rotation(model, ids.shape[1] + more.shape[1] + 2 * n_new)
    if is_unwritten(function):
        return NOT_DONE
    remarks, first = {}, None
    with torch.no_grad(), in_float32(model):
        known = {}
        whole = write_plainly(model, ids, more, n_new, None, known)
        for what, n, stop in _list_cases(whole, n_new):
            chat = whole
            if stop is not None or n != n_new:
                chat = write_plainly(model, ids, more, n, stop, known)
            problem, step, run, watch = _judge(function, model, ids, more, n, stop, chat)
            if problem is NOT_DONE:
                return problem
            if problem:
                right = "Without a stop token, both turns are right. " if first else ""
                picture = None if step is None else picture_of_step(run[step])
                return reject(f"{right}{what}{problem}", picture)
            remarks |= dict.fromkeys(list_remarks(run, chat, watch))
            first = first or run
    rows = ", ".join(map(str, first.rows))
    fed = "" if count_recomputed(first) else "turn two fed only what the cache didn't hold, and "
    says = f"rows {rows}: {fed}the text is the plain loop's, also where a stop token ends a turn "
    says += "early"
    return accept("; ".join([says, *remarks]), _draw_turns(first, whole))


def _draw_turns(run, chat: Chat):
    """The prompt, one row of each turn, and between them the steps where the message went in."""
    from kvviz.drawing.figures import draw_filmstrip

    ends = [step.held_after for step in run]
    message = next(i for i, end in enumerate(ends) if end >= chat.end_of_first + chat.n_more)
    steps = sorted({0, 1, message - 1, message, message + 1} & {*range(len(run))})
    return draw_filmstrip(run, steps=steps)


def _list_cases(whole: Chat, n_new: int):
    """(what to say first, n_new, stop): nothing stops, a turn stops early, one token a turn."""
    yield "", n_new, None
    first = whole.tokens[whole.n_prompt : whole.end_of_first]
    at = max(i for i in range(min(3, n_new)) if first[i] not in first[:i])
    yield f"With a stop token that ends turn one after {at + 1}: ", n_new, first[at]
    new = [i for i in range(n_new - 1) if whole.second[i] not in {*first, *whole.second[:i]}]
    if new:
        what = f"With a stop token that ends turn two after {new[0] + 1}: "
        yield what, n_new, whole.second[new[0]]
    yield "With n_new=1: ", 1, None


def _judge(function, model, ids, more, n_new, stop, chat: Chat):
    """(what is wrong or None, in which step, the recording, who called) of one call."""
    from kvviz.recording.recorder import record

    given = ids.clone(), more.clone()
    with record(model, keep=("logits",)) as run:
        watch = Watch(run)
        with watch.attached(model):
            called = attempt(function, model, *given, n_new, stop, seconds=SECONDS)
    problem, step = _find_problem(called, run, chat, given, (ids, more))
    return problem, step, run, watch


def _find_problem(called, run, chat: Chat, given, before):
    """What is wrong with a call that was recorded, and in which step; None if nothing is."""
    wrong, step = _find_wrong_step(run, chat)
    if (error := called.error) is not None:
        if isinstance(error, NotImplementedError) and not run:
            return NOT_DONE, None
        says = f"your function {_describe(error)}"
        return f"{wrong}; then {says}" if wrong else says, step
    if not run:
        nothing = called.result is None or called.result is Ellipsis
        return NOT_DONE if nothing else "your function never called the model", None
    if not all(map(torch.equal, given, before)):
        return "your function changed the tokens it was given: build a longer tensor", None
    total = chat.text.shape[1]
    problem = wrong or find_wrong_text(called.result, chat, run)
    if not problem and run.positions > total:
        problem = f"the text is right, but {run.positions} rows were computed for {total} tokens: "
        problem += "some were fed again"
    return problem, step


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
    if held < len(text):
        return (
            f"{counts}, beginning with {label(fed[0])!r}. What comes next is {label(text[held])!r}."
        )
    if text[-1] == chat.stop:
        return (
            f"{counts}: turn two chose the stop token, {label(chat.stop)!r}, and should have ended."
        )
    return f"{counts}: turn two has its n_new tokens and should have ended."
