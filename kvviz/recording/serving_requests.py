"""Follow the requests of one engine from pass to pass."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from kvviz.recording.serving_run import ServedRequest
from kvviz.recording.serving_step import ServingStep


@dataclass(eq=False)
class Served:
    """A request while it is recorded; `state` is what the engine itself keeps of it."""

    engine: int
    state: object
    seen: list[int] = field(default_factory=list)
    fed: list[int] = field(default_factory=list)

    def describe(self, read_text: Callable) -> ServedRequest:
        """The request as it is now, in plain values."""
        state = self.state
        # A request that was put back comes again with what it had written as part of its prompt.
        n_prompt = state._true_initial_tokens or len(state.initial_tokens)
        prompt, rest = state.initial_tokens[:n_prompt], state.initial_tokens[n_prompt:]
        new = [*rest, *state.generated_tokens]
        return ServedRequest(
            name=state.request_id,
            engine=self.engine,
            prompt_ids=tuple(prompt),
            new_ids=tuple(new),
            prompt=read_text(prompt),
            text=read_text(new),
            finished=state.status.name == "FINISHED",
            seen=tuple(self.seen),
            fed=tuple(self.fed),
        )


@dataclass
class Engine:
    """One start of an engine: its number, the requests it knows, and who held pages last."""

    number: int
    known: dict[str, Served] = field(default_factory=dict)
    holding: frozenset[str] = frozenset()

    def compare(self, scheduler) -> tuple[dict[str, Served], dict[str, tuple[str, ...]]]:
        """The requests that the engine knows now, and what became of them since the last pass."""
        waiting = tuple(scheduler.waiting_requests_order)
        states = {**scheduler.active_requests, **scheduler.waiting_requests}
        known, finished = {}, []
        for name, served in self.known.items():
            state = states.get(name)
            if state is None or not _is_same(served.state, state):
                finished.append(name)
            else:
                served.state = state
                known[name] = served
        for name, state in states.items():
            known.setdefault(name, Served(self.number, state))
        preempted = tuple(name for name in waiting if name in self.holding and name in self.known)
        news = {"waiting": waiting, "preempted": preempted, "finished": tuple(finished)}
        return known, news

    def settle(self, step: ServingStep, known: dict[str, Served]):
        """Note a pass that was made."""
        self.known = known
        self.holding = frozenset(each.name for each in step.holding)
        for served in known.values():
            served.seen.append(step.index)
        for each in step.requests:
            known[each.name].fed.append(step.index)


def _is_same(earlier, state) -> bool:
    """Whether a state is of the request that was seen before, or of a new one of that name.

    A request that was put back gets a new state, which knows how long its first prompt was.
    """
    return earlier is state or state._true_initial_tokens > 0
