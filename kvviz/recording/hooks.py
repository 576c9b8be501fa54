"""See into a model's attention without computing any of it.

In a model of `transformers` one function is hung into the library's own extension point; it calls
the model's own attention, and tells what went in and came out. The forge has one method for it.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import sys

from transformers import AttentionInterface, AttentionMaskInterface, PreTrainedModel
from transformers.masking_utils import ALL_MASK_ATTENTION_FUNCTIONS, eager_mask
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS


def to(model):
    """The way into `model`: its sizes, its modules to hook, and `watched`.

    Raises:
        TypeError: neither a model of `transformers` nor a forge.
        ValueError: one that cannot be recorded, or is being recorded already.
    """
    if isinstance(model, PreTrainedModel):
        return _Library(model)
    if all(hasattr(model, name) for name in ("attend", "positions", "register_forward_hook")):
        return _Forge(model)
    raise TypeError(
        "record takes a model of transformers, as load_model returns it, or a Forge, and got "
        f"{type(model).__name__}"
    )


class _Library:
    """A model of `transformers`, through its attention interface."""

    def __init__(self, model):
        self.model = model
        config = model.config.get_text_config()
        if model.config.is_encoder_decoder:
            raise ValueError(
                f"{type(model).__name__} is an encoder-decoder: record takes decoder-only models"
            )
        if any(str(c._attn_implementation).startswith("kvviz_") for c in _configs(model)):
            raise _twice(model)
        self.n_layers, self.vocab_size = config.num_hidden_layers, config.vocab_size
        self.max_positions = getattr(config, "max_position_embeddings", None)
        self.modules = list({id(m): m for m in (model, model.base_model)}.values())

    @contextlib.contextmanager
    def watched(self, weights: bool, saw):
        """Tell `saw` of each layer's attention, its weights included where they are wanted."""
        before = [(config, config._attn_implementation) for config in _configs(self.model)]
        current = self.model.config.get_text_config()._attn_implementation
        try:
            self._switch(_registered("eager" if weights else current or "eager", saw))
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
            raise refused(self.model)


class _Forge:
    """The from-scratch decoder: all its attention goes through `attend`."""

    def __init__(self, model):
        if "attend" in vars(model):
            raise _twice(model)
        self.model, self.modules = model, [model]
        self.n_layers, self.vocab_size = model.config.n_layers, model.config.vocab_size
        self.max_positions = model.config.max_positions

    @contextlib.contextmanager
    def watched(self, weights: bool, saw):
        attend, positions, told = self.model.attend, self.model.positions, {}

        def seen_positions(t, held):
            given = positions(t, held)
            told.setdefault("positions", given)  # the pass's own: the first asked for in it
            return given

        def seen_attend(layer, query, keys, values, mask):
            output, shares = attend(layer, query, keys, values, mask)
            square = None if mask is None else mask[None, None]
            saw(layer, query, keys, values, square, told["positions"], output,
                shares if weights else None)  # fmt: skip
            return output, shares

        self.model.attend, self.model.positions = seen_attend, seen_positions
        fresh = self.model.register_forward_pre_hook(lambda *_: told.clear())
        try:
            yield
        finally:
            fresh.remove()
            del self.model.attend, self.model.positions


def _registered(implementation, saw):
    """The name under which the library finds our function in front of `implementation`."""
    name, eager = f"kvviz_{implementation}", implementation == "eager"

    def attention(module, query, key, value, mask, **kwargs):
        call = _own_eager(module) if eager else ALL_ATTENTION_FUNCTIONS[implementation]
        output, weights = call(module, query, key, value, mask, **kwargs)
        rows = output.transpose(1, 2)  # the library hands back (B, Tq, H, D)
        saw(module.layer_idx, query, key, value, mask, kwargs.get("position_ids"), rows,
            weights if eager else None)  # fmt: skip
        return output, weights

    AttentionInterface.register(name, attention)
    AttentionMaskInterface.register(
        name, eager_mask if eager else ALL_MASK_ATTENTION_FUNCTIONS[implementation]
    )
    return name


def _own_eager(module):
    """The model's own attention, from the file that defines the layer (or the class it extends)."""
    for kind in type(module).__mro__:
        function = getattr(sys.modules.get(kind.__module__), "eager_attention_forward", None)
        if function is not None:
            return function
    raise refused(module)


def _configs(model):
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


def arguments(module, args, kwargs):
    """The call's arguments by name, wherever they were given."""
    given = inspect.signature(type(module).forward).bind_partial(module, *args, **kwargs).arguments
    return {**given, **given.pop("kwargs", {})}


def refused(model):
    return ValueError(
        f"{type(model).__name__} cannot be recorded: its attention does not go through the "
        "library's attention interface (Llama, Mistral, GPT-2, GPT-NeoX, Gemma, Qwen and most "
        "decoders do)"
    )


def _twice(model):
    return ValueError(
        f"this {type(model).__name__} is being recorded already: leave the first `with "
        "record(...)` block before you start a second"
    )
