"""What a recording doesn't keep, and a check needs: every row's logits, and the tokens behind
embeddings.

Seen at the head itself, so it doesn't matter how a loop calls the model: with a tuple for a result,
or the decoder and the head by hand.
"""

from __future__ import annotations

import contextlib
import sys
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvviz.checking.watchdog import TimeLimitReached


@dataclass
class Watch:
    """What passed through the head in each step of a run.

    Attributes:
        run: the recording that is being made of the same calls.
        max_calls: after more calls of the model, TimeLimitReached is raised.
        logits: step -> pairs of rows of that step and their logits, (rows,) and (rows, vocabulary).
        hidden: step -> last hidden states of sequence 0, (fed, width).
        token_ids: step -> tokens of sequence 0 whose embeddings were fed; -1 for no token's.
        calls, calls_by_library: how often the model ran, and how often `generate` ran it.
    """

    run: object
    max_calls: int | None = None
    logits: dict[int, list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    hidden: dict[int, Tensor] = field(default_factory=dict)
    token_ids: dict[int, list[int]] = field(default_factory=dict)
    calls: int = 0
    calls_by_library: int = 0
    is_inside: bool = False  # of a call of the whole model

    def __deepcopy__(self, memo):
        return self  # a loop may copy the model, with its hooks

    @contextlib.contextmanager
    def attached(self, model):
        """Watch `model` inside the block. Begin it inside `record`, whose hooks go first."""
        self.embed, base, head = model.get_input_embeddings(), model.base_model, None
        head = model.get_output_embeddings()
        handles = [
            model.register_forward_pre_hook(self._begin, with_kwargs=True),
            model.register_forward_hook(self._end, always_call=True),
            base.register_forward_pre_hook(self._begin_base, with_kwargs=True),
            base.register_forward_hook(self._end_base),
            head.register_forward_hook(self._end_head),
        ]
        try:
            yield
        finally:
            for handle in handles:
                handle.remove()

    def rows_of(self, step: int, fed: int) -> dict[int, Tensor]:
        """The logits of each row that was seen: row, from 0, -> (vocabulary,)."""
        seen = {}
        for rows, logits in self.logits.get(step, ()):
            seen |= {int(row): values for row, values in zip(rows, logits, strict=True)}
        return {row: seen[row] for row in sorted(seen) if row < fed}

    # -- hooks -----------------------------------------------------------------------------

    @property
    def _step(self) -> int:
        """The step under way; after a decoder that was called by hand, the one just recorded."""
        return len(self.run) if self.is_inside else len(self.run) - 1

    def _begin(self, module, args, kwargs):
        self.is_inside = True

    def _end(self, module, args, output):
        self.is_inside = False

    def _begin_base(self, module, args, kwargs):
        if self.max_calls is not None and self.calls >= self.max_calls:
            raise TimeLimitReached("it went on and on")
        self.calls += 1
        self.calls_by_library += _is_called_by_library()
        if (embeds := kwargs.get("inputs_embeds")) is not None:
            self.token_ids[len(self.run)] = self._find_tokens(embeds[0].detach())

    @property
    def is_of_library(self) -> bool:
        """Whether every call of the model came from the library's own loop."""
        return 0 < self.calls == self.calls_by_library

    def _find_tokens(self, embeds):
        with torch.no_grad():
            every = self.embed(torch.arange(self.embed.weight.shape[0], device=embeds.device))
        equal = [(every == row).all(-1).nonzero()[:1, 0].tolist() for row in embeds]
        return [found[0] if found else -1 for found in equal]

    def _end_base(self, module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output.last_hidden_state
        self.hidden[self._step] = hidden[0].detach().to("cpu", torch.float32, copy=True)

    def _end_head(self, module, args, output):
        if not self.hidden:
            return
        given = args[0].detach().to("cpu", torch.float32)
        given = (given[0] if given.ndim == 3 else given).reshape(-1, given.shape[-1])
        logits = output.detach().reshape(-1, output.shape[-1])[: len(given)]
        for step in sorted(self.hidden, reverse=True):
            rows = self._find_rows(given, self.hidden[step])
            if rows is None and self.is_inside and step == self._step:
                fed = len(self.hidden[step])
                rows = torch.arange(fed)[-len(given) :] if len(given) <= fed else None
            if rows is not None:
                logits = logits.to("cpu", torch.float32, copy=True)
                self.logits.setdefault(step, []).append((rows, logits))
                return

    def _find_rows(self, given, hidden):
        """Which rows of a step's hidden states the head was given; None if others."""
        if given.shape[-1] != hidden.shape[-1] or len(given) > len(hidden):
            return None
        if len(given) == len(hidden) and torch.equal(given, hidden):
            return torch.arange(len(hidden))
        equal = (given[:, None] == hidden[None]).all(-1)
        return equal.long().argmax(-1) if bool(equal.any(-1).all()) else None


def _is_called_by_library() -> bool:
    """Whether one of the library's own generation loops is among the callers."""
    frame = sys._getframe()
    while frame is not None:
        if frame.f_globals.get("__name__", "").startswith("transformers.generation"):
            return True
        frame = frame.f_back
    return False
