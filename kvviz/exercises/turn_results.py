"""What two turns gave: the text that came back, and what is right but worth a remark."""

from __future__ import annotations

from kvviz.checking.compare import count_common
from kvviz.checking.loop_watch import Watch
from kvviz.exercises.answers import to_tensor
from kvviz.exercises.chat import Chat
from kvviz.words import pluralize


def find_wrong_text(result, chat: Chat, run) -> str | None:
    out, total = to_tensor(result), chat.text.shape[1]
    if result is None:
        return "your function returned nothing: return the text of both turns, in one tensor"
    if out is None or out.numel() != out.shape[-1]:
        got = tuple(out.shape) if out is not None else type(result).__name__
        return f"expected the text of both turns in one tensor, {(1, total)}, but got {got}"
    ours, text, second = out.flatten().tolist(), chat.tokens, chat.second
    if ours == text:
        return None
    p, start = chat.n_prompt, chat.end_of_first
    if ours == [*text[:start], *second]:
        return "the message is missing from the text you returned"
    if ours in (text[p:], second, [*text[p:start], *second]):
        return "you returned the new tokens alone: return the prompt and the message too"
    for end in range(p + 1, len(ours) - chat.n_more + 1):
        if ours[end : end + chat.n_more] == chat.more and ours[:p] == text[:p]:
            if length := chat.tell_length(end, ours[p:end]):
                return length
    at = count_common(ours, text)
    if at == min(len(ours), total):
        return f"your text has {pluralize(len(ours), 'token')}, expected {total}"
    came, right = run.label(ours[at]), run.label(text[at])
    return f"your text has {came!r} at position {at}, where the plain loop has {right!r}"


def list_remarks(run, chat: Chat, watch: Watch) -> list[str]:
    """What is right, and takes more than it needs, or isn't the learner's own loop."""
    fed = {step.held_before: step.fed for step in run}
    start, said = chat.end_of_first, []
    if any(fed.get(start + i) for i in range(1, chat.n_more)):
        said.append("you fed the message in pieces, which is right, but one pass would do")
    elif fed.get(start):
        said.append("turn one's last token went in by itself, though it could go with the message")
    if again := count_recomputed(run):
        was = "was" if again == 1 else "were"
        said.append(
            f"{pluralize(again, 'row')} {was} recomputed, after being taken out of the cache"
        )
    if watch.is_of_library:
        said.append("that's the library's own loop: write yours")
    return said


def count_recomputed(run) -> int:
    """Rows of tokens that the cache had held, and that were taken out and fed again."""
    again = reach = 0
    for step in run:
        again += max(0, min(reach, step.held_after) - step.held_before)
        reach = max(reach, step.held_after)
    return again
