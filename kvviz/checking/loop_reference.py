"""What is right for one text, and the texts that a loop is called with."""

from __future__ import annotations

import time

import torch

from kvviz.checking.compare import GATE, SEEN, Reference
from kvviz.checking.loop_inputs import MAX_BYTES, in_float32, rotation_limit
from kvviz.checking.loop_watch import Watch
from kvviz.recording.recorder import record

LEAST_NEW = 3  # new tokens, so that two decode steps can be compared
SECOND_PROMPT = 40  # tokens, so that the second call holds more than the first


@torch.no_grad()
def uncached_reference(model, ids, n_new: int) -> Reference:
    """What the plain loop gives: n_new greedy tokens, and one pass over them without a cache."""
    p, start, ids = ids.shape[1], time.monotonic(), ids.long()
    with in_float32(model):
        with record(model, keep=()):  # which refuses a text that the model cannot take
            for _ in range(n_new - 1):
                newest = model(ids, use_cache=False).logits[:, -1:].argmax(-1)
                ids = torch.cat([ids, newest], dim=-1)
        with record(model, keep=SEEN, max_bytes=MAX_BYTES) as run:
            watch = Watch(run)
            with watch.attached(model):
                last = model(ids, use_cache=False).logits  # also the last pass of the plain loop
        ids = torch.cat([ids, last[:, -1:].argmax(-1)], dim=-1)
        logits = last.float().cpu()
        rows = watch.rows_of(0, run[0].fed)
        if len(rows) == run[0].fed:
            logits = torch.stack([*rows.values()])[None]
        kind = next(model.parameters()).dtype
    precision = torch.finfo(kind).eps / torch.finfo(torch.float32).eps
    gate, seconds = GATE * max(1.0, precision), time.monotonic() - start
    return Reference(ids, p, logits, run[0], gate, watch.hidden.get(0), seconds)


def second_prompt(model, reference: Reference):
    """The prompt backwards, again and again: longer, as far as the model's positions go."""
    prompt, known = reference.prompt, reference.ids.shape[1]
    most = getattr(model.config.get_text_config(), "max_position_embeddings", None) or known
    most = min(most, rotation_limit(model) or most)
    length = max(2, min(SECOND_PROMPT, max(known, most) - LEAST_NEW))
    length = max(length, prompt.shape[1])
    backwards = prompt.flip(1).repeat(1, -(-length // prompt.shape[1]))
    return backwards[:, : min(length, max(known, most) - LEAST_NEW)]
