"""What `draw_schedule` shows: what each request does in each step, and how long it waits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from kvviz.arguments import check_whole, describe
from kvviz.drawing.requests import Look, check_serving, choose_looks, list_names

# What a request does in a step. In "prefill" and "decode" a token comes out.
STATES = {
    "chunk": "rows of its prompt",
    "decode": "its newest token",
    "again": "fed again after being put back",
    "padding": "computed and thrown away",
    "idle": "keeps its pages, is fed nothing",
    "waiting": "waiting",
    "put back": "put back: its pages are taken",
}
FED = ("chunk", "prefill", "decode")


@dataclass(frozen=True)
class Slot:
    """One request in one step.

    Attributes:
        state: "chunk", "prefill", "decode", "idle", "waiting", "put back", "padding", or "" if the
            request hasn't come yet or has finished.
        rows, padding: rows that it was fed, and rows that were computed for it and thrown away.
        again: whether these rows were fed before, and lost.
    """

    state: str
    rows: int = 0
    padding: int = 0
    again: bool = False

    @property
    def gives_token(self) -> bool:
        return self.state in ("prefill", "decode")


@dataclass(frozen=True)
class Line:
    """A request's slots, one for each step, with how long its tokens take."""

    look: Look
    slots: tuple[Slot, ...]

    @cached_property
    def first(self) -> int:
        """The step in which the request is there for the first time."""
        return next((i for i, slot in enumerate(self.slots) if slot.state), 0)

    @cached_property
    def tokens(self) -> list[int]:
        """The steps in which a token comes out."""
        return [i for i, slot in enumerate(self.slots) if slot.gives_token]

    @cached_property
    def end(self) -> int:
        """The last step in which it does something."""
        return max((i for i, slot in enumerate(self.slots) if slot.state), default=0)

    def wait_first(self, costs: Sequence[int]) -> int | None:
        """What the steps up to its first token cost, those in which it waits among them."""
        return sum(costs[self.first : self.tokens[0] + 1]) if self.tokens else None

    def wait_most(self, costs: Sequence[int]) -> int | None:
        """The most that lies between two of its tokens."""
        pairs = zip(self.tokens, self.tokens[1:], strict=False)
        return max((sum(costs[one + 1 : other + 1]) for one, other in pairs), default=None)


@dataclass(frozen=True)
class Schedule:
    """All requests over all steps."""

    lines: tuple[Line, ...]
    n_steps: int

    @cached_property
    def totals(self) -> list[int]:
        """Rows in each step, thrown away or not."""
        return [
            sum(line.slots[i].rows + line.slots[i].padding for line in self.lines)
            for i in range(self.n_steps)
        ]

    @cached_property
    def states(self) -> list[str]:
        """What the legend explains."""
        slots = [slot for line in self.lines for slot in line.slots]
        found = {"chunk" if slot.state == "prefill" else slot.state for slot in slots}
        found |= {"again" for slot in slots if slot.again}
        found |= {"padding" for slot in slots if slot.padding}
        return [state for state in STATES if state in found]


def read_schedule(serving, prompts=None, padding=None) -> Schedule:
    """The schedule of a run of a serving engine, or of {request: rows in each step}.

    Raises:
        TypeError, ValueError: as `draw_schedule`.
    """
    given = {name: each for name, each in (("prompts", prompts), ("padding", padding))}
    given = {name: each for name, each in given.items() if each is not None}
    for name, each in given.items():
        if not isinstance(each, Mapping):
            raise ValueError(f"{name}: expected {{request: numbers}}, but got {describe(each)}")
    if isinstance(serving, Mapping):
        return _read_rows(serving, given.get("prompts", {}), given.get("padding", {}))
    for name in (each for each in given if given[each]):
        came = f"but got {describe(serving)}"
        raise ValueError(f"{name}: expected only with {{request: rows in each step}}, {came}")
    check_serving(serving)
    if not len(serving):
        raise ValueError("expected a recording with at least one step")
    lines = []
    for name, look in choose_looks(list_names(serving)).items():
        slots = [_read_slot(step, name) for step in serving]
        lines.append(Line(look, tuple(_mark_again(slots))))
    return Schedule(tuple(lines), len(serving))


def _read_slot(step, name: str) -> Slot:
    for request in step.holding:
        if request.name == name:
            return Slot(request.phase, request.rows)
    if name in step.preempted:
        return Slot("put back")
    return Slot("waiting" if name in step.waiting else "")


def _mark_again(slots: Sequence[Slot]) -> list[Slot]:
    """Mark the prompt's rows that follow a request's being put back."""
    found, lost = [], False
    for slot in slots:
        lost = slot.state == "put back" or (lost and slot.state != "decode")
        found.append(replace(slot, again=lost and slot.state in ("chunk", "prefill")))
    return found


def _read_rows(table: Mapping, prompts: Mapping, padding: Mapping) -> Schedule:
    if not table:
        raise ValueError("expected the rows of at least one request")
    rows = {name: _check_rows(repr(name), each) for name, each in table.items()}
    extra = {name: _check_rows(f"padding, {name!r}", each) for name, each in padding.items()}
    for name, each in (("prompts", prompts), ("padding", padding)):
        if unknown := [key for key in each if key not in table]:
            raise ValueError(f"{name}: expected the name of a request, but got {unknown[0]!r}")
    n = max(map(len, [*rows.values(), *extra.values()]))
    if not n:
        raise ValueError("expected at least one step")
    lines = []
    for name, look in choose_looks(map(str, table)).items():
        key = next(each for each in table if str(each) == name)
        prompt = prompts.get(key)
        if prompt is not None:
            prompt = check_whole(f"prompts, {key!r}", prompt, least=1)
        here = [*rows[key], *[0] * (n - len(rows[key]))]
        more = [each or 0 for each in extra.get(key, [])]
        more += [0] * (n - len(more))
        lines.append(Line(look, tuple(_make_slots(here, more, prompt))))
    return Schedule(tuple(lines), n)


def _check_rows(name: str, rows) -> list:
    if isinstance(rows, str | Mapping) or not hasattr(rows, "__iter__"):
        raise ValueError(f"{name}: expected the rows in each step, but got {describe(rows)}")
    return [None if each is None else check_whole(name, each, least=0) for each in rows]


def _make_slots(rows: list, padding: list[int], prompt: int | None) -> list[Slot]:
    """Slots of a request that is fed `rows`: None before it comes, 0 while it waits."""
    fed = [i for i, each in enumerate(rows) if each]
    last, slots, done = (fed[-1] if fed else -1), [], 0
    for i, each in enumerate(rows):
        if each:
            slots.append(Slot(_find_phase(rows, i, done, prompt), each, padding[i]))
        elif padding[i]:
            slots.append(Slot("padding", 0, padding[i]))
        elif each is None or (fed and i > last):
            slots.append(Slot(""))
        else:
            slots.append(Slot("idle" if done else "waiting"))
        done += each or 0
    return slots


def _find_phase(rows: list, i: int, done: int, prompt: int | None) -> str:
    """Without the prompt's length, steps with one row decode, and those with more don't."""
    if prompt is not None:
        if done >= prompt:
            return "decode"
        return "prefill" if done + rows[i] >= prompt else "chunk"
    if rows[i] == 1 and done:
        return "decode"
    following = next((each for each in rows[i + 1 :] if each), 1)
    return "chunk" if following > 1 else "prefill"
