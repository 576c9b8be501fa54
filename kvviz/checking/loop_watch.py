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

MAX_OTHERS = 2**26  # numbers, 256 MiB


@dataclass
class Watch:
    """What passed through the head in each step of a run.

    Attributes:
        run: the recording that is being made of the same calls.
        max_calls: after more calls of the model, TimeLimitReached is raised.
        logits: (step, sequence) -> pairs of rows of it and their logits, (rows,) and (rows,
            vocabulary). Of sequences after the first, only as many as `room` allows.
        hidden: step -> last hidden states, (B, fed, width).
        token_ids: step -> for each sequence, the tokens whose embeddings were fed; -1 for no
            token's.
        room: numbers that may still be kept of the logits of sequences after the first.
        calls, calls_by_library: how often the model ran, and how often `generate` ran it.
    """

    run: object
    max_calls: int | None = None
    logits: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = field(default_factory=dict)
    hidden: dict[int, Tensor] = field(default_factory=dict)
    token_ids: dict[int, list[list[int]]] = field(default_factory=dict)
    room: int = MAX_OTHERS
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

    def rows_of(self, step: int, fed: int, sequence: int = 0) -> dict[int, Tensor]:
        """The logits of each row that was seen: row, from 0, -> (vocabulary,)."""
        seen = {}
        for rows, logits in self.logits.get((step, sequence), ()):
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
            self.token_ids[len(self.run)] = self._find_tokens(embeds.detach())

    @property
    def is_of_library(self) -> bool:
        """Whether every call of the model came from the library's own loop."""
        return 0 < self.calls == self.calls_by_library

    def _find_tokens(self, embeds):
        with torch.no_grad():
            every = self.embed(torch.arange(self.embed.weight.shape[0], device=embeds.device))

        def find(row):
            return next(iter((every == row).all(-1).nonzero()[:1, 0].tolist()), -1)

        return [[find(row) for row in sequence] for sequence in embeds]

    def _end_base(self, module, args, output):
        hidden = output[0] if isinstance(output, tuple) else output.last_hidden_state
        self.hidden[self._step] = hidden.detach().to("cpu", torch.float32, copy=True)

    def _end_head(self, module, args, output):
        if not self.hidden:
            return
        given = args[0].detach().to("cpu", torch.float32)
        blocks = given if given.ndim == 3 else given.reshape(1, -1, given.shape[-1])
        logits = output.detach().reshape(*blocks.shape[:2], output.shape[-1])
        for number, block in enumerate(blocks):
            if found := self._find_block(block, number):
                self._keep(*found, logits[number])
            elif given.ndim == 2:  # one row of each sequence
                for i, row in enumerate(block[:, None]):
                    if found := self._find_block(row, i):
                        self._keep(*found, logits[number, i : i + 1])

    def _keep(self, step: int, sequence: int, rows: Tensor, logits: Tensor):
        if sequence:
            self.room -= logits.numel()
        if not sequence or self.room >= 0:
            logits = logits.to("cpu", torch.float32, copy=True)
            self.logits.setdefault((step, sequence), []).append((rows, logits))

    def _find_block(self, given: Tensor, number: int) -> tuple[int, int, Tensor] | None:
        """The step and sequence whose rows the head was given, and which; the sequence of the same
        number if it fits. None if they are others."""
        for step in sorted(self.hidden, reverse=True):
            hidden = self.hidden[step]
            for sequence in sorted(range(len(hidden)), key=lambda each: each != number):
                rows = self._find_rows(given, hidden[sequence])
                if rows is not None:
                    return step, sequence, rows
            fed, is_own = hidden.shape[1], self.is_inside and step == self._step
            if is_own and number < len(hidden) and len(given) <= fed:
                return step, number, torch.arange(fed)[-len(given) :]
        return None

    def _find_rows(self, given, hidden):
        """Which rows of a sequence's hidden states the head was given; None if others."""
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
