"""What `draw_pages` shows: each request's page table, and what is in each page."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from kvviz.drawing.requests import Look, choose_looks, list_names, pick_step
from kvviz.words import join, pluralize

LONGEST = 11  # entries of a page table that are drawn
MOST = 72  # pages; of more, free ones are left out, and then the last ones
MANY = 10  # requests; of more, only those that hold pages have a line
STATES = {
    "new": "written in this step",
    "read": "written earlier",
    "shared": "shared: a band for each owner",
    "empty": "empty cell",
    "free": "free page",
    "cached": "kept for a prompt that begins the same",
    "lent": "lent to layers with a window",
}


@dataclass(frozen=True)
class Entry:
    """One entry of a page table; `page` is None for those that aren't drawn."""

    page: int | None
    looks: tuple[Look, ...] = ()
    new: bool = False


@dataclass(frozen=True)
class Line:
    """A request's page table, or why it has none."""

    look: Look
    held: int
    entries: tuple[Entry, ...]
    status: str


class Memory:
    """The memory of a serving engine after one step.

    `widest` is the most owners that a page ever has in the run.
    """

    def __init__(self, step, looks: dict[str, Look], past: set[str], widest: int):
        self.step, self.looks, self._past, self.widest = step, looks, past, widest
        pages = {page: "owned" for page in step.owners}
        for state in ("free", "cached", "lent", "reserved"):
            pages |= dict.fromkeys(getattr(step, state), state)
        self.states = dict(sorted(pages.items()))
        pages = [page for page, state in self.states.items() if state != "reserved"]
        spare = [page for page in pages if self.states[page] == "free"]
        out = {*spare[: max(0, len(pages) - MOST)]}
        self.pages = [page for page in pages if page not in out][:MOST]
        self.n_left_out = len(pages) - len(self.pages)

    def owners(self, page: int) -> tuple[Look, ...]:
        return tuple(self.looks[name] for name in self.step.owners.get(page, ()))

    @cached_property
    def _written(self) -> set[tuple[int, int]]:
        size, written = self.step.page_size, set()
        for request in self.step.requests:
            for position in request.positions:
                written.add((request.pages[position // size], position % size))
        return written

    def written(self, page: int) -> np.ndarray:
        """Of each cell of a page, whether this step wrote it."""
        return np.array([(page, cell) in self._written for cell in range(self.step.page_size)])

    @cached_property
    def lines(self) -> list[Line]:
        """A line for each request, in the order in which they came."""
        holding = {request.name: request for request in self.step.holding}
        lines = []
        for name, look in self.looks.items():
            request = holding.get(name)
            if request is not None:
                entries = self._list_entries(request.pages)
                lines.append(Line(look, request.held, entries, ""))
            elif len(self.looks) <= MANY:
                lines.append(Line(look, 0, (), self._say_why(name)))
        return lines

    def _list_entries(self, pages) -> tuple[Entry, ...]:
        entries = []
        for k in self.drawn:
            if k is None and len(pages) > LONGEST // 2:
                entries.append(Entry(None))
            elif k is not None and k < len(pages):
                new = bool(self.written(pages[k]).any())
                entries.append(Entry(pages[k], self.owners(pages[k]), new))
        return tuple(entries)

    def _say_why(self, name: str) -> str:
        """Why a request has no pages."""
        if name in self.step.preempted:
            return "put back: waiting again"
        if name in self.step.waiting:
            return "waiting"
        return "finished" if name in self._past else "not here yet"

    @cached_property
    def heads(self) -> list[str]:
        """The positions that each entry of a page table is for."""
        size = self.step.page_size
        return [
            "…" if k is None else f"{k * size}" + f"–{k * size + size - 1}" * (size > 1)
            for k in self.drawn
        ]

    @cached_property
    def drawn(self) -> list[int | None]:
        """Which entries of the page tables are drawn; None stands for those that aren't."""
        longest = max((len(request.pages) for request in self.step.holding), default=0)
        numbers: list[int | None] = list(range(longest))
        if longest > LONGEST:
            numbers[LONGEST // 2 : LONGEST // 2 - LONGEST + 1] = [None]
        return numbers

    @cached_property
    def tally(self) -> Counter[str]:
        """How many pages are owned, free, ..."""
        return Counter(self.states.values())


def read_memory(serving, step: int) -> Memory:
    """The memory after this step of a run."""
    taken = pick_step(serving, step)
    past = {each.name for before in serving[:step] for each in before.holding}
    widest = max((len(names) for each in serving for names in each.owners.values()), default=1)
    return Memory(taken, choose_looks(list_names(serving)), past, widest)


def list_states(memory: Memory) -> list[str]:
    """What the legend explains."""
    step, states = memory.step, {state for state, n in memory.tally.items() if n}
    states |= {"new"} if step.rows else set()
    states |= {"read"} if step.held_cells > step.rows else set()
    states |= {"shared"} if step.shared else set()
    states |= {"empty"} if step.wasted_cells else set()
    return [state for state in STATES if state in states]


# -- words ---------------------------------------------------------------------------------------


def write_title(memory: Memory) -> str:
    step, n = memory.step, len(memory.step.owners)
    used = f"{n} of {pluralize(step.n_pages, 'page')} in use"
    shared = f", {len(step.shared)} of them shared" if step.shared else ""
    return f"Step {step.index}: {used}{shared}"


def summarize_memory(memory: Memory) -> str:
    """`16 pages of 8 cells; 62 of the 72 cells in use are filled`."""
    step = memory.step
    words = f"{pluralize(step.n_pages, 'page')} of {pluralize(step.page_size, 'cell')}"
    filled, all_cells = step.held_cells, step.allocated_cells
    words += f"; in the pages in use, {filled:,} of {pluralize(all_cells, 'cell')} are filled"
    if memory.n_left_out:
        words += f"; {pluralize(memory.n_left_out, 'page')} not drawn"
    return words


def explain_entry(memory: Memory) -> str:
    """How to find the newest token of the first request that was fed; empty if none was."""
    fed = [request for request in memory.step.requests if request.rows]
    if not fed:
        return ""
    request, size = fed[0], memory.step.page_size
    position, name = request.positions[-1], memory.looks[fed[0].name].name
    entry, cell = divmod(position, size)
    return (
        f"For example, {name}'s newest token is at position {position} = "
        f"{entry} × {size} + {cell}: entry {entry} says page {request.pages[entry]}, cell {cell}."
    )


def describe_memory(memory: Memory) -> str:
    """The facts that are drawn, in one sentence."""
    step, parts = memory.step, []
    for request in step.holding:
        pages = ", ".join(map(str, request.pages))
        where = f"page{'s' * (len(request.pages) > 1)} {pages}"
        fed = f"{pluralize(request.rows, 'row')} written" if request.rows else "nothing written"
        name = memory.looks[request.name].name
        parts.append(f"{name} holds {pluralize(request.held, 'token')} in {where}, {fed}")
    for names, pages in _group_shared(step).items():
        numbers = join([str(page) for page in pages])
        owners = join([memory.looks[name].name for name in names])
        parts.append(f"page{'s' * (len(pages) > 1)} {numbers} shared by {owners}")
    parts += [
        f"{line.look.name}: {line.status}"
        for line in memory.lines
        if not line.entries and line.status != "not here yet"
    ]
    if len(memory.looks) > MANY and step.waiting:
        parts.append(f"{pluralize(len(step.waiting), 'request')} waiting")
    parts += [
        f"{pluralize(memory.tally[state], 'page')} {words}"
        for state, words in (("free", "free"), ("cached", "kept"), ("lent", "lent"))
        if memory.tally[state]
    ]
    used = f"{len(step.owners)} of {pluralize(step.n_pages, 'page')}"
    size = f"of {pluralize(step.page_size, 'cell')}"
    head = f"step {step.index}: {used} {size} in use, {step.wasted_cells} of their cells empty"
    return "; ".join([head, *parts])


def _group_shared(step) -> dict[tuple[str, ...], list[int]]:
    groups: dict[tuple[str, ...], list[int]] = {}
    for page, names in step.shared.items():
        groups.setdefault(names, []).append(page)
    return groups
