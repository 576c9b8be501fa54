"""One forward pass under way: what its layers' attention saw, until it is a `Step`."""

from __future__ import annotations

import torch
from transformers.cache_utils import DYNAMIC_LAYER_TYPE_MAPPING

from kvviz.recording import cache_state
from kvviz.recording.lineage import History, Pass
from kvviz.recording.refusal import Guard
from kvviz.recording.run import Run
from kvviz.recording.step import Step
from kvviz.recording.witness import take_witness


class ForwardPass:
    """Collects counts and copies while the model runs; `finish` makes the `Step`.

    Args:
        run: where the step will be; copies are counted in it.
        given: the arguments of the call, by name.
        opened: the model, as `hooks.open_model` returns it.
        keep, layers: what to keep, and of which layers; see `record`.

    Raises:
        TypeError: a cache that cannot be read.
        ValueError: the call has neither token ids nor embeddings.
    """

    def __init__(self, run: Run, given: dict, opened, keep, layers):
        self.run, self.opened, self.keep, self.layers = run, opened, keep, layers
        ids, embeds = given.get("input_ids", given.get("ids")), given.get("inputs_embeds")
        if ids is None and embeds is None:
            raise ValueError("a forward pass takes input_ids or inputs_embeds, but got neither")
        if not isinstance(embeds if ids is None else ids, torch.Tensor):
            raise TypeError(f"expected input_ids as a tensor of int64, got {type(ids).__name__}")
        self.has_ids = ids is not None
        self.token_ids = (
            ids.detach().cpu().clone() if self.has_ids else torch.full(embeds.shape[:2], -1)
        )
        mask = given.get("attention_mask")  # a tensor, or one for each kind of layer
        self.attention_mask = mask if isinstance(mask, torch.Tensor) else None
        # Counted before the pass, which changes the cache; a static one's length is a live tensor.
        self.cache = given.get("cache", given.get("past_key_values"))
        self.before = cache_state.count_held(self.cache, opened.n_layers)
        self.held_before = max(self.before.values(), default=0)
        self._guard = Guard(opened, self.cache, self.before, self.fed, keep)
        self.rows: dict[int, int] = {}
        self.columns: dict[int, int] = {}
        self.kv_heads: dict[int, int] = {}
        self.widths: dict[int, list[int]] = {}
        self.kept: dict[str, dict[int, torch.Tensor]] = {}
        self.gaps: dict[int, float] = {}
        self._masks: dict[tuple, tuple] = {}
        self._positions: torch.Tensor | None = None
        self._entries: dict[int, tuple] = {}  # key and value of each layer

    @property
    def fed(self) -> int:
        return self.token_ids.shape[-1]

    def note_attention(self, layer, query, key, value, mask, positions, output, weights):
        """Note one layer's attention: counts always, and copies of what is to be kept.

        query and output (B, H, Tq, D), key and value (B, G, Tk, D), weights (B, H, Tq, Tk) or None.
        """
        if self._guard.has_attended(layer, query, key):
            return
        self._guard.check_columns(layer, key.shape[-2])
        self.rows[layer], self.columns[layer] = query.shape[-2], key.shape[-2]
        self.kv_heads[layer] = key.shape[1]
        self.widths[layer] = [key.shape[-1], value.shape[-1]]
        self._entries[layer] = key, value
        if self._positions is None:
            self._positions = positions
        if layer not in self.layers:
            return
        given = {"queries": query, "keys": key, "values": value, "outputs": output}
        if "attention" in self.keep:
            self._guard.check_weights(layer, weights, (query.shape[-2], key.shape[-2]))
            given["attention"] = weights
            self.gaps[layer] = _measure_gap(weights, value, output)
            self._keep("allowed", layer, self._copy_mask(mask, weights))
        for name in self.keep:
            if name in given:
                self._keep(name, layer, self._copy(given[name]))

    def _keep(self, name, layer, tensor):
        self.kept.setdefault(name, {})[layer] = tensor

    def _copy(self, tensor):
        self.run.reserve(4 * tensor.numel())
        return tensor.detach().to("cpu", torch.float32, copy=True)

    def _copy_mask(self, mask, weights):
        """Which cells the mask lets through, (B or 1, H or 1, Tq, Tk); shared between layers."""
        shape = (1, 1, *weights.shape[-2:])
        if (id(mask), shape) not in self._masks:
            allowed = torch.ones(shape, dtype=torch.bool)
            if mask is not None:
                open_ = mask if mask.dtype == torch.bool else mask > torch.finfo(mask.dtype).min / 2
                open_ = open_[..., : shape[-1]].detach()
                allowed = open_.expand(*open_.shape[:-2], *shape[-2:]).to("cpu", copy=True)
            self.run.reserve(allowed.numel())
            # With the mask in the entry, no other mask can get its id while the pass runs.
            self._masks[id(mask), shape] = (mask, allowed)
        return self._masks[id(mask), shape][1]

    def finish(self, output, history: History) -> Step:
        """The finished step; `history` traces its columns to the steps before.

        Raises:
            ValueError: something in this pass could not be seen.
        """
        cache, n_layers = cache_state.find_cache(output, self.cache), self.opened.n_layers
        self._guard.check_end(cache)
        logits = _find_logits(output, self.opened.model.config)
        if "logits" in self.keep and logits is not None:
            self.kept["logits"] = {-1: self._copy(logits[:, -1])}
        position_ids = self._read_positions()
        lineage = self._trace(position_ids, history, cache)
        return Step(
            index=len(self.run),
            token_ids=self.token_ids,
            position_ids=position_ids,
            held_before=self.held_before,
            before=self.before,
            after=cache_state.count_held(cache, n_layers),
            bytes=cache_state.count_bytes(cache, n_layers),
            slots=cache_state.count_slots(cache),
            rows_by_layer=self.rows,
            columns_by_layer=self.columns,
            kv_heads_by_layer=self.kv_heads,
            widths_by_layer=self.widths,
            pads=self._read_pads(),
            gaps=self.gaps,
            implementation=self.opened.implementation,
            kept=self.kept,
            lineage=lineage,
            run=self.run,
            label=self.run.label,
        )

    def _trace(self, position_ids, history, cache):
        """Where this pass's rows and columns came from."""
        keys, values = map(take_witness, self._entries[self._choose_witness()])
        self.run.reserve(4 * keys.numel() + 2 * values.numel())  # one of each value's two numbers
        now = Pass(
            token_ids=self.token_ids,
            position_ids=position_ids,
            held=self.held_before,
            keys=keys,
            values=values,
            cache=history.caches.number(cache),
        )
        return history.trace(now)

    def _choose_witness(self):
        """The layer whose keys tell where columns came from: the deepest that has no window.

        It is the same in every pass: keys of two layers cannot be compared.
        """
        kinds = getattr(self.opened.config, "layer_types", None) or []
        slides = [getattr(DYNAMIC_LAYER_TYPE_MAPPING.get(k), "is_sliding", False) for k in kinds]
        full = [n for n in self._entries if n >= len(slides) or not slides[n]]
        return max(full or self._entries)

    def _read_positions(self):
        """(B, Tq) int64: the positions given to attention, else those that follow the cache."""
        n_sequences, fed = self.token_ids.shape
        positions = self._positions
        if positions is None:
            positions = self.held_before + torch.arange(fed)
        # Models that read images give (3, B, Tq): time, height and width. The first is taken.
        positions = positions.reshape(-1, positions.shape[-1])[:n_sequences, -fed:]
        return positions.detach().cpu().expand(n_sequences, fed).clone()

    def _read_pads(self):
        """(B, held + Tq) bool: the positions marked as padding; None without a 2-D mask."""
        mask = self.attention_mask
        if mask is None or mask.ndim != 2:
            return None
        return mask[:, : self.held_before + self.fed].cpu() == 0


def _find_logits(output, config):
    """(B, Tq, vocabulary) from what a forward pass gave back; None if it has none."""
    if isinstance(output, tuple):  # with return_dict=False
        sizes = (getattr(config, "vocab_size", None),)
        return next((part for part in output if getattr(part, "shape", ())[-1:] == sizes), None)
    return output if isinstance(output, torch.Tensor) else getattr(output, "logits", None)


def _measure_gap(weights, value, output):
    """Largest |weights @ values - output|, over the largest |output|."""
    weights, value, output = weights.detach(), value.detach(), output.detach()
    shared_by = weights.shape[1] // value.shape[1]  # this many query heads
    blend = weights @ value.repeat_interleave(shared_by, dim=1).to(weights.dtype)
    scale = output.abs().max().clamp_min(torch.finfo(torch.float32).tiny)
    return float((blend - output).abs().max() / scale)
