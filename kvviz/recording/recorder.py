"""Record any generation loop: what was fed, what the cache held, what each row attended to."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import NamedTuple

import torch

from kvviz import tokens
from kvviz.arguments import check_whole, describe, is_iterable, is_whole
from kvviz.recording import hooks
from kvviz.recording.engine_errors import EngineLog
from kvviz.recording.forward_pass import ForwardPass
from kvviz.recording.input_checks import check_input
from kvviz.recording.lineage import History
from kvviz.recording.refusal import PAGED, name_serving, refuse_batching
from kvviz.recording.run import Run
from kvviz.recording.step import KEEP
from kvviz.recording.steps import check_tokenizer


@contextlib.contextmanager
def record(model, tokenizer=None, *, keep=("attention",), layers=None, max_bytes=2**30):
    """Record every forward pass made inside the `with` block.

    With `keep=()`, nothing in the model changes: the logits are the same to the bit. Only the
    model's own eager attention gives back its weights, so it runs while "attention" is kept. It
    differs from the faster kinds by rounding: about 1e-6 in float32, but in bfloat16 enough to
    change a token now and then. What `torch.compile` compiled runs uncompiled inside the block.

    Args:
        model: a causal decoder of `transformers` whose attention goes through the library's
            attention interface, or a `Forge`. Its settings and hooks are put back at the end.
        tokenizer: gives the tokens their text. `load_model` has remembered its own; without one,
            tokens are labelled by number.
        keep: what to keep besides the counts, any of "attention" (B, H, Tq, Tk), "queries"
            (B, H, Tq, D), "keys" and "values" (B, G, Tk, D) as attention sees them, "outputs"
            (B, H, Tq, D) and "logits" (B, vocabulary; of the last row). `()` keeps counts only.
        layers: the layers to keep it of, from 0; all of them by default.
        max_bytes: a recording that would grow past this many bytes stops with an error.

    Yields:
        Run: grows by one `Step` with each forward pass.

    Raises:
        TypeError: `model` is neither a model of `transformers` nor a `Forge`, `tokenizer` no
            tokenizer, or `keep` no list of names; inside the block, ids that are no integers, or a
            cache that cannot be read.
        ValueError: a model that cannot be recorded, a second recording inside the first, a name,
            a layer or a limit that does not exist; inside the block, an id outside the vocabulary,
            a mask that does not cover what is held, more tokens than the cache has room for or
            the model has a table of positions for, or a pass with attention that cannot be seen.
        MemoryError: the recording would exceed `max_bytes`.

    >>> with kv.record(model, keep=("keys",), layers=[1]) as mine:
    ...     logits = model(ids).logits
    >>> mine[0].keys[1].shape  # sequences, key/value heads, columns, head width
    torch.Size([1, 2, 6, 22])
    """
    recorder = _Recorder(model, tokenizer, keep, layers, max_bytes)
    with recorder.attach():
        yield recorder.run


class _Recorder:
    """One recording: its hooks on the model, and the run that it fills."""

    def __init__(self, model, tokenizer, keep, layers, max_bytes):
        self.opened = hooks.open_model(model)
        self.keep = _check_keep(keep)
        self.layers = check_layers(layers, self.opened.n_layers)
        max_bytes = check_whole("max_bytes", max_bytes, least=0)
        if check_tokenizer(tokenizer) is None:
            tokenizer = tokens.find_tokenizer(model)
        self.run = Run(tokenizer=tokenizer, max_bytes=max_bytes)
        self.history = History()
        self.log = EngineLog(self.opened.model)

    def __deepcopy__(self, memo):
        return self  # a copy of the model keeps its hooks: what it does is recorded too

    @contextlib.contextmanager
    def attach(self):
        handles = []
        try:
            for module in self.opened.modules:
                handles += [
                    module.register_forward_pre_hook(self._begin, with_kwargs=True),
                    module.register_forward_hook(self._end, with_kwargs=True, always_call=True),
                ]
            watch = self.opened.watch("attention" in self.keep, _note_attention)
            with self.log, refuse_batching(self.opened.model), watch:
                yield
        except Exception:
            if self.log.error is None:
                raise
        finally:
            for handle in handles:
                handle.remove()
            _under_way[:] = [each for each in _under_way if each.recorder is not self]
            self.run.close()
        self.log.raise_noted()

    def _begin(self, module, args, kwargs):
        if _under_way and _under_way[-1].recorder is self:
            if _under_way[-1].module is not module:
                return  # the decoder inside the language model: the same forward pass
            _under_way.pop()  # it was interrupted: no hook runs after that
        forward = error = None
        if type(kwargs.get("cache")).__name__ == PAGED:
            # An engine that was set up before: what is raised in its thread must come out of here.
            self.log.note(name_serving(self.opened.model))
            raise self.log.error
        try:
            given = hooks.name_arguments(module, args, kwargs)
            forward = ForwardPass(self.run, given, self.opened, self.keep, self.layers)
        except Exception as raised:
            if not self.opened.is_forge:
                raise
            error = raised  # the forge may have a clearer one of its own: that goes first
        else:
            check_input(forward, self.opened)
        _under_way.append(_UnderWay(self, module, forward, error))

    def _end(self, module, args, kwargs, output):
        if not _under_way or _under_way[-1].module is not module:
            return
        _, _, forward, error = _under_way.pop()
        if output is None:  # the forward pass raised
            return
        if error is not None:
            raise error
        self.run.append(forward.finish(output, self.history))


class _UnderWay(NamedTuple):
    """A forward pass that has begun, and the recorder and module that it belongs to."""

    recorder: _Recorder
    module: torch.nn.Module
    forward: ForwardPass | None
    error: Exception | None


_under_way: list[_UnderWay] = []  # innermost last


def _note_attention(*given):
    if _under_way and _under_way[-1].forward is not None:
        _under_way[-1].forward.note_attention(*given)


def _check_keep(keep):
    names = (keep,) if isinstance(keep, str) else keep
    if isinstance(names, bytes | Mapping) or not is_iterable(names):
        raise TypeError(f"keep takes any of {', '.join(KEEP)}, but got {describe(keep)}")
    names = tuple(names)
    unknown = [name for name in names if not isinstance(name, str) or name not in KEEP]
    if unknown:
        raise ValueError(f"keep takes any of {', '.join(KEEP)}, but got {describe(unknown[0])}")
    return names


def check_layers(layers, n_layers):
    """The layers to keep something of, each of them one of the model's, else a ValueError."""
    if layers is None:
        return range(n_layers)
    is_one = isinstance(layers, str | bytes | Mapping) or not is_iterable(layers)
    numbers = (layers,) if is_one else tuple(layers)
    for layer in numbers:
        if not is_whole(layer) or not 0 <= layer < n_layers:
            raise ValueError(
                f"this model has layers 0 to {n_layers - 1}, but got {describe(layer)}"
            )
    return frozenset(map(int, numbers))
