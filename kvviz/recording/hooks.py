"""Watch a model's attention without computing any of it.

In a model of `transformers`, one function is registered through the library's own extension point:
it calls the model's own attention and passes on what went in and what came out. A forge has one
method for all its attention, which is wrapped in the same way.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import sys
from typing import NoReturn

from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


def open_model(model) -> LibraryModel | ForgeModel:
    """`model` as the recorder needs it: its sizes, the modules to hook, and `watch`.

    Raises:
        TypeError: neither a model of `transformers` nor a forge.
        ValueError: a model that cannot be recorded, or is being recorded already.
    """
    if isinstance(model, PreTrainedModel):
        return LibraryModel(model)
    if all(hasattr(model, name) for name in ("attend", "positions", "register_forward_hook")):
        return ForgeModel(model)
    raise TypeError(
        "record takes a model of transformers, as load_model returns it, or a Forge, and got "
        f"{type(model).__name__}"
    )


class LibraryModel:
    """A model of `transformers`, watched through its attention interface."""

    def __init__(self, model):
        self.model = model
        config = model.config.get_text_config()
        if model.config.is_encoder_decoder:
            raise ValueError(
                f"{type(model).__name__} is an encoder-decoder: record takes decoder-only models"
            )
        if any(str(c._attn_implementation).startswith("kvviz_") for c in _list_configs(model)):
            _refuse_second(model)
        self.n_layers, self.vocab_size = config.num_hidden_layers, config.vocab_size
        self.max_positions = getattr(config, "max_position_embeddings", None)
        self.modules = list({id(m): m for m in (model, model.base_model)}.values())

    @contextlib.contextmanager
    def watch(self, weights: bool, notice):
        """Inside the block, call `notice` with each layer's attention, its weights if wanted."""
        before = [(config, config._attn_implementation) for config in _list_configs(self.model)]
        current = self.model.config.get_text_config()._attn_implementation
        try:
            self._switch(_register("eager" if weights else current or "eager", notice))
            yield
        finally:
            for config, implementation in before:
                config._attn_implementation = implementation

    def _switch(self, name):
        log = logging.getLogger("transformers.modeling_utils")
        level, log.level = log.level, logging.ERROR  # a model that refuses only logs it: we raise
        try:
            self.model.set_attn_implementation(name)
        finally:
            log.setLevel(level)
        if self.model.config.get_text_config()._attn_implementation != name:
            refuse(self.model)


class ForgeModel:
    """The from-scratch decoder: all its attention goes through `attend`."""

    def __init__(self, model):
        if "attend" in vars(model):
            _refuse_second(model)
        self.model, self.modules = model, [model]
        self.n_layers, self.vocab_size = model.config.n_layers, model.config.vocab_size
        self.max_positions = model.config.max_positions

    @contextlib.contextmanager
    def watch(self, weights: bool, notice):
        """Inside the block, call `notice` with each layer's attention, its weights if wanted."""
        attend, positions, of_pass = self.model.attend, self.model.positions, {}

        def note_positions(t, held):
            given = positions(t, held)
            of_pass.setdefault("positions", given)  # the first asked for are the pass's own
            return given

        def note_attention(layer, query, keys, values, mask):
            output, shares = attend(layer, query, keys, values, mask)
            square = None if mask is None else mask[None, None]
            shown = shares if weights else None
            notice(layer, query, keys, values, square, of_pass["positions"], output, shown)
            return output, shares

        self.model.attend, self.model.positions = note_attention, note_positions
        fresh = self.model.register_forward_pre_hook(lambda *_: of_pass.clear())
        try:
            yield
        finally:
            fresh.remove()
            del self.model.attend, self.model.positions


def _register(implementation, notice):
    """Register a function in front of `implementation`, and return its name in the library."""
    name, is_eager = f"kvviz_{implementation}", implementation == "eager"

    def attention(module, query, key, value, mask, **kwargs):
        call = _find_eager(module) if is_eager else ALL_ATTENTION_FUNCTIONS[implementation]
        output, weights = call(module, query, key, value, mask, **kwargs)
        rows = output.transpose(1, 2)  # the library returns (B, Tq, H, D)
        positions, shown = kwargs.get("position_ids"), weights if is_eager else None
        notice(module.layer_idx, query, key, value, mask, positions, rows, shown)
        return output, weights

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(
        name, eager_mask if is_eager else ALL_MASK_ATTENTION_FUNCTIONS[implementation]
    )
    return name


def _find_eager(module):
    """The model's own attention, from the file that defines the layer or a class it extends."""
    for kind in type(module).__mro__:
        function = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if function is not None:
            return function
    return refuse(module)


def _list_configs(model):
    """Every config that says how some part of the model attends, the model's own first."""
    found = {id(model.config): model.config}
    for module in model.modules():
        config = getattr(module, "config", None)
        if hasattr(config, "_attn_implementation"):
            found.setdefault(id(config), config)
    for config in tuple(found.values()):
        for name in config.sub_configs:
            if (part := getattr(config, name, None)) is not None:
                found.setdefault(id(part), part)
    return list(found.values())


def name_arguments(module, args, kwargs) -> dict:
    """All arguments of a call of `module`, by name."""
    given = inspect.signature(type(module).forward).bind_partial(module, *args, **kwargs).arguments
    return {**given, **given.pop("kwargs", {})}


def refuse(model) -> NoReturn:
    """Raise the error for a model whose attention cannot be watched."""
    raise ValueError(
        f"{type(model).__name__} cannot be recorded: its attention does not go through the "
        "library's attention interface (Llama, Mistral, GPT-2, GPT-NeoX, Gemma, Qwen and most "
        "decoders do)"
    )


def _refuse_second(model) -> NoReturn:
    raise ValueError(
        f"this {type(model).__name__} is being recorded already: leave the first `with "
        "record(...)` block before you start a second"
    )
