"""Watch a model's attention without computing any of it.

In a model of `transformers`, every layer asks the library's attention interface for the function
that it calls. While a recording runs, what the interface gives is called as always, and what went
in and came out is passed on; no setting gets a name of ours. A forge has one method for all its
attention, which is wrapped in the same way.
"""

from __future__ import annotations

import contextlib
import inspect
import logging

import torch
from transformers import AttentionInterface, PreTrainedModel

from kvviz.arguments import describe
from kvviz.recording.refusal import is_served, refuse, refuse_second
from kvviz.recording.tables import count_embeddings, find_position_limit


def open_model(model) -> LibraryModel | ForgeModel:
    """`model` as the recorder needs it: its sizes, the modules to hook, and `watch`.

    Raises:
        TypeError: neither a model of `transformers` nor a forge.
        ValueError: a model that cannot be recorded, or is being recorded already.
    """
    model = getattr(model, "_orig_mod", model)  # what torch.compile put its wrapper around
    if isinstance(model, PreTrainedModel):
        return LibraryModel(model)
    needed = ("attend", "positions", "register_forward_hook")
    if not isinstance(model, type) and all(hasattr(model, name) for name in needed):
        return ForgeModel(model)
    raise TypeError(
        "record takes a model of transformers, as load_model returns it, or a Forge, but got "
        f"{describe(model)}"
    )


class LibraryModel:
    """A model of `transformers`, watched through its attention interface."""

    is_forge = False

    def __init__(self, model):
        config, decoder = model.config.get_text_config(), _find_decoder(model)
        self.model, self.config = model, config
        self.n_layers = getattr(config, "num_hidden_layers", 0)
        self.layers = {
            module: module.layer_idx
            for module in decoder.modules()
            if getattr(module, "layer_idx", None) in range(self.n_layers)
        }
        self._refuse_unsupported()
        # A text model knows the ids that its table has rows for; others may mark images by more.
        is_text = config is model.config
        self.n_embeddings = count_embeddings(model) if is_text else None
        self.max_positions = find_position_limit(decoder, config)
        self.modules = list({id(m): m for m in (model, model.base_model, decoder)}.values())

    def _refuse_unsupported(self):
        if self.model.config.is_encoder_decoder:
            refuse(self.model, "it is an encoder-decoder, and record takes decoder-only models")
        if not self.layers:
            refuse(self.model, "none of its layers has a number, as a causal decoder's have")
        if is_served(self.model) or any(_find_watch(module) for module in self.layers):
            refuse_second(self.model)
        causal = [getattr(module, "is_causal", None) for module in self.layers]
        is_decoder = self.model.can_generate() and getattr(self.config, "is_decoder", True)
        if False in causal and True not in causal and not is_decoder:
            refuse(
                self.model,
                "it lets every token attend to those after it, and record takes causal decoders",
            )

    @property
    def implementation(self) -> str:
        """The name of the attention that runs now."""
        return self.config._attn_implementation or "eager"

    @contextlib.contextmanager
    def watch(self, weights: bool, notice):
        """Inside the block, call `notice` with each layer's attention, its weights if wanted."""
        with self.keep_settings():
            if weights:
                self._set_eager()
            with _watch_layers(self.layers, notice, weights):
                yield

    @contextlib.contextmanager
    def keep_settings(self):
        """After the block, every part of the model attends as it did before."""
        before = [(config, config._attn_implementation) for config in _list_configs(self.model)]
        try:
            yield
        finally:
            for config, implementation in before:
                config._attn_implementation = implementation

    def _set_eager(self):
        """Let the model run its own eager attention, the only kind that gives back its weights."""
        log = logging.getLogger("transformers.modeling_utils")
        level, log.level = log.level, logging.ERROR  # a model that refuses only logs it: we raise
        try:
            self.model.set_attn_implementation("eager")
        finally:
            log.setLevel(level)
        if self.config._attn_implementation != "eager":
            refuse(self.model)


class ForgeModel:
    """The from-scratch decoder: all its attention goes through `attend`."""

    is_forge, implementation = True, "forge"
    config = n_embeddings = max_positions = None  # a forge checks its input itself

    def __init__(self, model):
        if "attend" in vars(model):
            refuse_second(model)
        self.model, self.modules = model, [model]
        self.n_layers = model.config.n_layers

    @contextlib.contextmanager
    def watch(self, weights: bool, notice):
        """Inside the block, call `notice` with each layer's attention, its weights if wanted."""
        attend, positions, of_pass = self.model.attend, self.model.positions, {}

        def note_positions(*args, **kwargs):
            given = positions(*args, **kwargs)
            of_pass.setdefault("positions", given)  # the first asked for are the pass's own
            return given

        def note_attention(layer, query, keys, values, mask):
            output, shares = attend(layer, query, keys, values, mask)
            square = None if mask is None else mask[None, None]
            shown = shares if weights else None
            asked = of_pass.get("positions")  # none, in a forward that never asks for them
            notice(layer, query, keys, values, square, asked, output, shown)
            return output, shares

        self.model.attend, self.model.positions = note_attention, note_positions
        fresh = self.model.register_forward_pre_hook(lambda *_: of_pass.clear())
        try:
            yield
        finally:
            fresh.remove()
            del self.model.attend, self.model.positions


class _Watch:
    """What to do with the attention of one layer, and of every copy of it made meanwhile."""

    def __init__(self, layer, notice, weights):
        self.layer, self.notice, self.weights, self.is_on = layer, notice, weights, True

    def __deepcopy__(self, memo):
        return self  # a copy of the model is recorded with it


_WATCH = "_kvviz_watch"  # an attribute of the modules that are watched
_active: set[_Watch] = set()
_put_back = contextlib.ExitStack()  # undoes what the first of several recordings changed
_get_interface = AttentionInterface.get_interface
_ATTENTION_ARGUMENTS = ("query", "key", "value", "attention_mask")


@contextlib.contextmanager
def _watch_layers(layers, notice, weights):
    """Inside the block, the interface passes on the attention of these modules."""
    try:
        if not _active:
            _put_back.callback(setattr, AttentionInterface, "get_interface", _get_interface)
            AttentionInterface.get_interface = _get_watched
            # Compiled code would pass its layers by: inside the block, it runs as it is written.
            _put_back.enter_context(torch.compiler.set_stance("force_eager"))
        for module, layer in layers.items():
            watch = _Watch(layer, notice, weights)
            setattr(module, _WATCH, watch)
            _active.add(watch)
        yield
    finally:
        for module in layers:
            if watch := vars(module).pop(_WATCH, None):
                watch.is_on = False  # a copy of the module keeps it
                _active.discard(watch)
        if not _active:
            _put_back.close()


def _find_watch(module) -> _Watch | None:
    watch = vars(module).get(_WATCH)
    return watch if watch is not None and watch.is_on else None


def _get_watched(interface, name, default):
    """The function that the model would have called, its attention passed on."""
    call = _get_interface(interface, name, default)

    def attention(module, *args, **kwargs):
        output, weights = call(module, *args, **kwargs)
        if watch := _find_watch(module):
            given = {**dict(zip(_ATTENTION_ARGUMENTS, args, strict=False)), **kwargs}
            query, key, value, mask = (given.get(name) for name in _ATTENTION_ARGUMENTS)
            rows = output.transpose(1, 2)  # the library returns (B, Tq, H, D)
            shown = weights if watch.weights else None
            watch.notice(
                watch.layer, query, key, value, mask, given.get("position_ids"), rows, shown
            )
        return output, weights

    return attention


def _find_decoder(model):
    decoder = model.get_decoder()  # in some models, a plain module of that name
    return decoder if isinstance(decoder, PreTrainedModel) else model.base_model


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
