"""Record any generation loop: what was fed, what was held, who looked at whom.

What happens in a model is seen through `access`, which never computes attention itself; this keeps
copies of what passed through, and the counts.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass, field

import torch

from kvviz import tokens
from kvviz.recording import cache_state as store
from kvviz.recording import hooks as access
from kvviz.recording.run import Run
from kvviz.recording.step import KEEP, Step

_forwards: list[_Forward] = []  # forward passes under way, innermost last


@contextlib.contextmanager
def record(model, tokenizer=None, *, keep=("attention",), layers=None, max_bytes=2**30):
    """Record every forward pass made inside the `with` block.

    Args:
        model: any causal decoder of `transformers` whose attention goes through the library's
            attention interface, or a `Forge`. Its settings and hooks are put back on the way out.
        tokenizer: gives the tokens their text; that of `load_model` is known already. Without
            one they are labelled by number.
        keep: what to keep beside the counts, any of "attention" (B, H, Tq, Tk), "queries"
            (B, H, Tq, D), "keys" and "values" (B, G, Tk, D) as attention sees them, "outputs"
            (B, H, Tq, D) and "logits" (B, vocabulary; of the last row). `()` keeps counts only.
        layers: the layers to keep them of, from 0; all of them by default.
        max_bytes: a recording that would grow past this many bytes stops with an error.

    Yields:
        Run: grows by one `Step` with each forward pass.

    Raises:
        TypeError: `model` is neither a model of `transformers` nor a `Forge`.
        ValueError: a model that cannot be recorded, a second recording inside the first, a name
            or a layer that does not exist; inside the block, a mask that does not cover what is
            held, or more tokens than the store or the model has places for.
        MemoryError: the recording would exceed `max_bytes`.
    """
    recorder = _Recorder(model, tokenizer, keep, layers, max_bytes)
    with recorder.attached():
        yield recorder.run


class _Recorder:
    """One recording: its hooks on the model, and the run that it fills."""

    def __init__(self, model, tokenizer, keep, layers, max_bytes):
        self.way = access.to(model)
        self.keep = _checked_keep(keep)
        self.layers = _checked_layers(layers, self.way.n_layers)
        self.run = Run(tokenizer=tokenizer or tokens.of(model), max_bytes=max_bytes)

    def __deepcopy__(self, memo):
        return self  # a copy of the model keeps its hooks: what it does is recorded too

    @contextlib.contextmanager
    def attached(self):
        handles = []
        try:
            for module in self.way.modules:
                handles += [
                    module.register_forward_pre_hook(self._begin, with_kwargs=True),
                    module.register_forward_hook(self._end, with_kwargs=True, always_call=True),
                ]
            with self.way.watched("attention" in self.keep, _saw):
                yield
        finally:
            for handle in handles:
                handle.remove()
            _forwards[:] = [forward for forward in _forwards if forward.recorder is not self]
            self.run.close()

    def _begin(self, module, args, kwargs):
        if _forwards and _forwards[-1].recorder is self:
            return  # the decoder inside the language model: the same forward pass
        given = access.arguments(module, args, kwargs)
        forward = _Forward(self, module, given)
        self._refuse_bad_input(forward, given.get("attention_mask"))
        _forwards.append(forward)

    def _end(self, module, args, kwargs, output):
        if not _forwards or _forwards[-1].module is not module:
            return
        forward = _forwards.pop()
        if output is None:  # the forward pass raised
            return
        if not forward.columns:
            raise access.refused(self.way.model)
        self.run.append(forward.finish(output))

    def _refuse_bad_input(self, forward, mask):
        fed, held = forward.token_ids.shape[1], forward.held_before
        if mask is not None and mask.ndim == 2 and mask.shape[1] < held + fed:
            raise ValueError(
                f"attention_mask covers {mask.shape[1]} places, but {held} tokens are held and "
                f"{fed} fed: expected {held + fed}"
            )
        slots = store.slots(forward.cache, self.way.n_layers)
        if slots is not None and held + fed > slots:
            raise ValueError(
                f"the store has {slots} slots, {held} of them filled: {fed} more tokens do not fit"
            )
        if (
            fed == self.way.vocab_size and not forward.token_ids.any()
        ):  # the only row of scores: zeros
            error = ValueError(
                f"{fed} tokens fed, as many as the vocabulary has: was the argmax taken over the "
                "wrong axis? It is the last one, dim=-1"
            )
            error.cause = "argmax over the wrong axis"
            raise error
        if self.way.max_positions and held + fed > self.way.max_positions:
            raise ValueError(
                f"{type(self.way.model).__name__} knows {self.way.max_positions} positions, "
                f"but {held} tokens are held and {fed} fed"
            )


@dataclass
class _Forward:
    """One forward pass under way."""

    recorder: _Recorder
    module: torch.nn.Module
    given: dict
    rows: dict[int, int] = field(default_factory=dict)
    columns: dict[int, int] = field(default_factory=dict)
    kept: dict[str, dict[int, torch.Tensor]] = field(default_factory=dict)
    gaps: dict[int, float] = field(default_factory=dict)
    masks: dict[tuple, tuple] = field(default_factory=dict)
    positions: torch.Tensor | None = None
    witness: torch.Tensor | None = None  # keys of the deepest layer that sees the most columns

    def __post_init__(self):
        ids = self.given.get("input_ids", self.given.get("ids"))
        embeds = self.given.get("inputs_embeds")
        if ids is None and embeds is None:
            raise ValueError("a forward pass takes input_ids or inputs_embeds, and got neither")
        self.token_ids = (
            torch.full(embeds.shape[:2], -1) if ids is None else ids.detach().cpu().clone()
        )
        # Read before the pass: the store is changed in place, a static one's length is a tensor.
        self.cache = self.given.get("cache", self.given.get("past_key_values"))
        self.before = store.seen(self.cache, self.recorder.way.n_layers)
        self.held_before = max(self.before.values(), default=0)

    def saw(self, layer, query, key, value, mask, positions, output, weights):
        """Note one layer's attention: counts always, copies of what is to be kept.

        query and output (B, H, Tq, D), key and value (B, G, Tk, D), weights (B, H, Tq, Tk) or None.
        """
        self.rows[layer], self.columns[layer] = query.shape[-2], key.shape[-2]
        if self.positions is None and positions is not None:
            self.positions = positions
        if self.witness is None or key.shape[-2] >= self.witness.shape[-2]:
            self.witness = key
        recorder = self.recorder
        if layer not in recorder.layers:
            return
        seen = {"queries": query, "keys": key, "values": value, "outputs": output}
        if weights is not None:
            seen["attention"] = weights
            self.gaps[layer] = _gap(weights, value, output)
            self._keep("allowed", layer, self._allowed(mask, weights))
        for name in recorder.keep:
            if name in seen:
                self._keep(name, layer, self._copy(seen[name]))

    def _keep(self, name, layer, tensor):
        self.kept.setdefault(name, {})[layer] = tensor

    def _copy(self, tensor):
        self.recorder.run.reserve(4 * tensor.numel())
        return tensor.detach().to("cpu", torch.float32, copy=True)

    def _allowed(self, mask, weights):
        """Which cells the mask lets through, (B or 1, H or 1, Tq, Tk); shared between layers."""
        shape = (1, 1, *weights.shape[-2:])
        if (id(mask), shape) not in self.masks:
            allowed = torch.ones(shape, dtype=torch.bool)
            if mask is not None:
                open_ = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
                allowed = open_[..., : shape[-1]].detach().to("cpu", copy=True)
            self.recorder.run.reserve(allowed.numel())
            self.masks[id(mask), shape] = (mask, allowed)  # holding the mask keeps its id its own
        return self.masks[id(mask), shape][1]

    def finish(self, output):
        n_batch, fed = self.token_ids.shape
        n_layers = self.recorder.way.n_layers
        after_cache = store.after_pass(output, self.cache)
        after = store.seen(after_cache, n_layers)
        positions = self.positions
        if positions is None:
            positions = self.held_before + torch.arange(fed)
        positions = positions.reshape(-1, positions.shape[-1])[
            :n_batch, -fed:
        ]  # of several axes one
        mask = self.given.get("attention_mask")
        if mask is not None:
            mask = mask[:, : self.held_before + fed].cpu() == 0 if mask.ndim == 2 else None
        logits = output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)
        if "logits" in self.recorder.keep and logits is not None:
            self.kept["logits"] = {-1: self._copy(logits[:, -1])}
        return Step(
            token_ids=self.token_ids,
            position_ids=positions.detach().cpu().expand(n_batch, fed).clone(),
            held_before=self.held_before,
            before=self.before,
            after=after,
            bytes=store.n_bytes(after_cache, n_layers),
            slots=store.slots(after_cache, n_layers),
            rows_by_layer=self.rows,
            columns_by_layer=self.columns,
            pads=mask,
            witness=_project(self.witness),
            gaps=self.gaps,
            kept=self.kept,
        )


def _saw(*seen):
    if _forwards:
        _forwards[-1].saw(*seen)


def _checked_keep(keep):
    names = (keep,) if isinstance(keep, str) else tuple(keep)
    unknown = [name for name in names if name not in KEEP]
    if unknown:
        raise ValueError(f"keep takes any of {', '.join(KEEP)}, and got {unknown[0]!r}")
    return names


def _checked_layers(layers, n_layers):
    if layers is None:
        return range(n_layers)
    layers = (layers,) if isinstance(layers, int) else tuple(layers)
    for layer in layers:
        if not isinstance(layer, int) or not 0 <= layer < n_layers:
            raise ValueError(f"this model has layers 0 to {n_layers - 1}, and got {layer!r}")
    return frozenset(layers)


def _gap(weights, value, output):
    """Largest |weights @ values - output|, over the largest |output|."""
    weights, value, output = weights.detach(), value.detach(), output.detach()
    n_groups = weights.shape[1] // value.shape[1]
    blend = weights @ value.repeat_interleave(n_groups, dim=1).to(weights.dtype)
    scale = output.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
    return float((blend - output).abs().max() / scale)


def _project(keys):
    """Two numbers a column, (B, Tk, 2), that tell whether a key is the one seen before."""
    flat = keys.detach().to("cpu", torch.float32).transpose(1, 2).flatten(2)
    seeded = torch.Generator().manual_seed(0)
    directions = torch.randn(flat.shape[-1], 2, generator=seeded)
    return flat @ directions
