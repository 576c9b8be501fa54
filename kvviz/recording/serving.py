"""Record a serving engine: who was fed in each pass, whose tokens lie in which page."""

from __future__ import annotations

import contextlib
import threading
from typing import NamedTuple

import torch
from transformers import PreTrainedModel

from kvviz import tokens
from kvviz.arguments import check_whole, describe
from kvviz.recording import engine, hooks
from kvviz.recording.engine_errors import EngineLog
from kvviz.recording.recorder import check_layers
from kvviz.recording.refusal import PAGED, mark_served, refuse
from kvviz.recording.serving_requests import Engine, Served
from kvviz.recording.serving_run import ServingRun
from kvviz.recording.serving_step import ServingStep
from kvviz.recording.steps import check_tokenizer


@contextlib.contextmanager
def record_serving(model, tokenizer=None, *, keep=(), layers=None, max_bytes=2**30):
    """Record every pass that the engine of `transformers` makes inside the `with` block.

    Use the library's own calls inside: `model.generate_batch`, or a manager, as
    `model.continuous_batching_context_manager` gives one. Nothing in the engine is changed, and its
    texts stay the same. An engine still running when the block ends serves its requests and stops;
    after an error it stops at once.

    Args:
        model: a causal decoder of `transformers` that its engine serves, with at least one layer
            that attends to everything. Its settings and hooks are put back at the end.
        tokenizer: gives the tokens their text; see `record`.
        keep: `("attention",)` keeps the square of each whole pass: the engine's own eager attention
            runs then, which differs from the faster kinds by rounding. `()` keeps counts only.
        layers: the layers to keep it of, from 0; all of them by default.
        max_bytes: a recording that would grow past this many bytes stops with an error.

    Yields:
        ServingRun: grows by one `ServingStep` with each pass of an engine.

    Raises:
        TypeError: `model` isn't a model of `transformers`, or `tokenizer` no tokenizer.
        ValueError: a model that the engine or the recording can't take, a recording inside another,
            a name, layer or limit that doesn't exist, or an engine that can't be read.
        RuntimeError: an engine ended early, for instance because its pages are too few for a
            request; raised at the end of the block.
        MemoryError: the recording would exceed `max_bytes`; raised at the end of the block.

    >>> from transformers import ContinuousBatchingConfig
    >>> pages = ContinuousBatchingConfig(page_size=4, num_blocks=16, max_batch_tokens=8)
    >>> with kv.record_serving(model) as served:
    ...     _ = model.generate_batch(ids.tolist(), continuous_batching_config=pages,
    ...                              max_new_tokens=2)
    >>> [(step.rows, step.requests[0].phase, len(step.owners)) for step in served]
    [(6, 'prefill', 2), (1, 'decode', 2)]
    """
    recorder = _ServingRecorder(model, tokenizer, keep, layers, max_bytes)
    with recorder.attach():
        yield recorder.run


class _UnderWay(NamedTuple):
    """A pass that has begun, its engine, and the requests that the engine knows."""

    step: ServingStep
    engine: Engine
    known: dict[str, Served]


class _ServingRecorder:
    """One recording: its hooks on the model, and the run that it fills."""

    def __init__(self, model, tokenizer, keep, layers, max_bytes):
        self.model = _check_model(model)
        self.opened = hooks.LibraryModel(self.model)
        self.keeps_attention = _check_keep(keep)
        self.layers = check_layers(layers, self.opened.n_layers)
        max_bytes = check_whole("max_bytes", max_bytes, least=0)
        found = check_tokenizer(tokenizer)
        found = tokens.find_tokenizer(self.model) if found is None else found
        self.run = ServingRun(tokenizer=found, max_bytes=max_bytes)
        self.log = EngineLog(self.model)
        self.engines: dict[threading.Thread, Engine] = {}
        self.served: list[Served] = []
        self.under_way: _UnderWay | None = None

    def __deepcopy__(self, memo):
        return self  # a copy of the model keeps its hooks

    @contextlib.contextmanager
    def attach(self):
        if engine.list_managers(self.model):
            refuse(self.model, "its engine runs already: start it inside the `with` block")
        self.run.open(self._list_requests)
        try:
            with contextlib.ExitStack() as stack:
                stack.callback(self.run.close)
                stack.enter_context(mark_served(self.opened.modules))
                stack.enter_context(self.log)
                stack.enter_context(self.opened.keep_settings())
                if self.keeps_attention:
                    stack.enter_context(self.opened.watch(True, self._note_attention))
                begin, end = self.model.register_forward_pre_hook, self.model.register_forward_hook
                stack.callback(begin(self._begin, with_kwargs=True, prepend=True).remove)
                stack.callback(end(self._end, with_kwargs=True).remove)
                with _end_engines(self.model):
                    yield
        except Exception:
            if self.log.error is None:
                raise
        self.log.raise_noted()

    # -- hooks, called in the engine's thread ----------------------------------------------------

    def _begin(self, module, args, kwargs):
        if type(kwargs.get("cache")).__name__ != PAGED:
            return  # a forward pass of the learner's own
        self.under_way = None
        with self._noting():
            self.under_way = self._read_pass(kwargs)

    def _end(self, module, args, kwargs, output):
        if type(kwargs.get("cache")).__name__ != PAGED or self.under_way is None:
            return
        step, now, known = self.under_way
        with self._noting():
            missing = {*self.layers} - (step.attention or {}).keys()
            if self.keeps_attention and missing:
                refuse(self.model, f"its layers {sorted(missing)} were not seen to attend")
        now.settle(step, known)
        self.served += [each for each in known.values() if len(each.seen) == 1]
        self.run.append(step)
        self.under_way = None

    @contextlib.contextmanager
    def _noting(self):
        """What is raised in the block ends the engine's thread, and is raised again later."""
        try:
            yield
        except BaseException as error:
            self.log.note(error)
            raise

    def _note_attention(self, layer, query, key, value, mask, positions, output, weights):
        is_engine = threading.current_thread() in self.engines
        if not is_engine or self.under_way is None or layer not in self.layers:
            return
        step = self.under_way.step
        expected = step.rows, len(step.list_columns(layer))
        with self._noting():
            came = None if weights is None else tuple(weights.shape[-2:])
            if came != expected:
                what = f"its layer {layer} gives weights of (rows, columns) {came}"
                refuse(self.model, f"{what}, where {expected} are expected")
            self.run.reserve(4 * weights.numel())
            step.attention[layer] = weights[0].detach().to("cpu", torch.float32, copy=True).numpy()

    def _read_pass(self, given):
        thread = threading.current_thread()
        if any(other.is_alive() for other in self.engines if other is not thread):
            refuse(self.model, "it has two engines at a time: stop the first before the second")
        now = self.engines.setdefault(thread, Engine(number=len(self.engines)))
        with engine.name_missing(self.model):
            processor = engine.find_manager().batch_processor
            engine.check_engine(self.model, given, processor)
            fed, idle = engine.read_requests(given, processor.scheduler)
            pages = engine.read_pages(given["cache"], [*fed, *idle])
            known, news = now.compare(processor.scheduler)
        step = ServingStep(
            index=len(self.run),
            engine=now.number,
            requests=tuple(fed),
            idle=tuple(idle),
            attention={} if self.keeps_attention else None,
            **news,
            **pages._asdict(),
        )
        self.run.reserve(step.count_bytes())
        return _UnderWay(step, now, known)

    def _list_requests(self):
        return [each.describe(self.run.read_text) for each in self.served]


@contextlib.contextmanager
def _end_engines(model):
    """After the block, no engine of this model runs: it serves its requests, or stops at once."""
    hard = True
    try:
        yield
        for manager in engine.list_managers(model):
            engine.stop(manager)
        hard = False
    finally:
        for manager in engine.list_managers(model) if hard else ():
            engine.stop(manager, hard_stop=True)


def _check_model(model):
    model = getattr(model, "_orig_mod", model)
    if not isinstance(model, PreTrainedModel):
        has = "a model of transformers, whose engine it records"
        came = type(model).__name__
        raise TypeError(f"record_serving takes {has}, but got {came}: use record for a Forge")
    if model.config.is_encoder_decoder:
        refuse(model, "it is an encoder-decoder, and record_serving takes decoder-only models")
    if not hasattr(model, "generate_batch") or not model.can_generate():
        refuse(model, "it has no generate_batch, which starts the engine of transformers")
    engine.check_kinds(model)
    return model


def _check_keep(keep) -> bool:
    """Whether attention is kept."""
    names = (keep,) if isinstance(keep, str) else keep
    listed = isinstance(names, list | tuple | set | frozenset)
    if not listed or not all(isinstance(name, str) and name == "attention" for name in names):
        raise ValueError(f"keep takes ('attention',) or (), but got {describe(keep)}")
    return bool(names)
