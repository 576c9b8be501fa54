"""The right way to share out the rows of a pass, and typical wrong ways, each with its hint."""

from __future__ import annotations


def serve_first_come(running, waiting, budget) -> dict[str, int]:
    """What the engine's own scheduler does (`FIFOScheduler` of transformers) while there's room."""
    decoding = [(name, 1) for name, left in running.items() if left == 0]
    prompts = [(name, left) for name, left in running.items() if left]
    return _deal([*decoding, *prompts, *waiting.items()], budget)


def _deal(needs, budget, whole=False) -> dict[str, int]:
    rows = {}
    for name, need in needs:
        fed = min(need, budget) if not whole or need <= budget else 0
        rows |= {name: fed} if fed else {}
        budget -= fed
    return rows


def _split(running):
    decoding = [(name, 1) for name, left in running.items() if left == 0]
    return decoding, [(name, left) for name, left in running.items() if left]


def _prompts_first(running, waiting, budget):
    decoding, prompts = _split(running)
    return _deal([*prompts, *decoding, *waiting.items()], budget)


def _all_prompts_first(running, waiting, budget):
    decoding, prompts = _split(running)
    return _deal([*prompts, *waiting.items(), *decoding], budget)


def _as_they_came(running, waiting, budget):
    return _deal([(n, left or 1) for n, left in [*running.items(), *waiting.items()]], budget)


def _whole_prompts(running, waiting, budget):
    decoding, prompts = _split(running)
    return _deal([*decoding, *prompts, *waiting.items()], budget, whole=True)


def _whole_or_stop(running, waiting, budget):
    decoding, prompts = _split(running)
    needs, rows = [*decoding, *prompts, *waiting.items()], {}
    for name, need in needs:
        if need > budget:
            break
        rows[name], budget = need, budget - need
    return rows


def _newcomers_first(running, waiting, budget):
    decoding, prompts = _split(running)
    return _deal([*decoding, *waiting.items(), *prompts], budget)


def _one_prompt(running, waiting, budget):
    decoding, prompts = _split(running)
    return _deal([*decoding, *[*prompts, *waiting.items()][:1]], budget)


def _static(running, waiting, budget):
    decoding, prompts = _split(running)
    return _deal([*decoding, *prompts] if running else [*waiting.items()], budget)


def _never_admits(running, waiting, budget):
    decoding, prompts = _split(running)
    return _deal([*decoding, *prompts], budget)


def _forgets_decode(running, waiting, budget):
    return _deal([*running.items(), *waiting.items()], budget)


def _last_come(running, waiting, budget):
    decoding, prompts = _split(running)
    return _deal([*decoding, *prompts, *reversed(waiting.items())], budget)


def _shortest_first(running, waiting, budget):
    decoding, prompts = _split(running)
    prompts = sorted([*prompts, *waiting.items()], key=lambda each: each[1])
    return _deal([*decoding, *prompts], budget)


_PROMPT_FIRST = (
    "prompts come before decode rows: whoever is reading an answer then waits for other people's "
    "prompts. Decode rows first. (Engines offer both: the library's other one is `prefill_first`.)"
)
_WHOLE = (
    "a whole prompt or nothing: a long one waits until there's room for all of it, and rows stay "
    "empty. Feed as much of it as fits, and the rest in the next pass."
)
MISTAKES = {
    _prompts_first: _PROMPT_FIRST,
    _all_prompts_first: _PROMPT_FIRST,
    _as_they_came: "decode rows first, wherever they are in the order: a prompt that came before "
    "takes the rows of those who are decoding",
    _whole_prompts: _WHOLE,
    _whole_or_stop: _WHOLE,
    _newcomers_first: "a prompt that's half fed comes before those that haven't begun: nobody is "
    "overtaken",
    _one_prompt: "one prompt a pass: as long as rows are left, the next one can use them",
    _static: "that's static batching: those who wait may join while others are running",
    _never_admits: "nobody who waits is ever let in: give them the rows that are left",
    _forgets_decode: "a request that decodes is fed nothing: its prompt is done, so it needs one "
    "row, for the token it wrote last",
    _last_come: "the one that came last goes first: keep the order of arrival",
    _shortest_first: "the shortest prompt goes first, and a long one may wait forever: keep the "
    "order of arrival",
}
