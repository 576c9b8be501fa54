"""Learn why an engine of `transformers` ended early: it says so in its log, in its own thread."""

from __future__ import annotations

import contextlib
import logging
import threading

from kvviz.recording.engine import count_pages, find_manager
from kvviz.words import join, pluralize

_NAMES = 3  # requests named in one error


class EngineLog(logging.Filter):
    """Listens to the engine's log for what ended it; what is raised later isn't printed as well.

    Use it as a context manager: `error` is what to raise after the block, or None.
    """

    def __init__(self, model):
        super().__init__()
        self.model, self.error = model, None
        self._log = logging.getLogger("ContinuousBatchingLogger")

    def __enter__(self):
        self._log.addFilter(self)
        return self

    def __exit__(self, *_):
        self._log.removeFilter(self)

    def filter(self, record) -> bool:
        manager = find_manager()
        if manager is not None and manager.model is self.model and _ends_loop(record):
            self.note(explain(record.exc_info[1], manager))
            return False
        # Once an engine has ended, its requests fail one by one: that is the same error.
        return self.error is None or record.levelno < logging.WARNING

    def note(self, error: BaseException):
        """Remember the first error."""
        if self.error is None:
            self.error = error

    def raise_noted(self):
        """Raise that error, if there was one, in the thread that calls this."""
        if self.error is not None:
            self.error.__suppress_context__ = True  # what the block made of it says less
            if isinstance(self.error, ValueError | MemoryError | RuntimeError):  # it says enough
                # Without the frames of the engine's thread, which would keep its whole cache.
                self.error.__traceback__ = None
            raise self.error


def _ends_loop(record) -> bool:
    """Whether this is the error that the engine's loop ended with: it came out of its target."""
    if not record.exc_info or record.exc_info[2] is None:
        return False
    target = getattr(threading.current_thread(), "_target", None)
    code = getattr(getattr(target, "__func__", None), "__code__", None)
    return record.exc_info[2].tb_frame.f_code is code


def explain(error: BaseException, manager) -> BaseException:
    """What an engine ended with, as one error for whoever started it."""
    # This runs while the engine handles that error, and nothing else may go wrong there.
    with contextlib.suppress(Exception):
        scheduler = manager.batch_processor.scheduler
        states = [*scheduler.active_requests.values(), *scheduler.waiting_requests.values()]
        if _is_its_own(error) and (too_large := _list_too_large(states, scheduler.cache)):
            return RuntimeError(_say_too_large(too_large, scheduler.cache))
    kind = type(error).__name__
    name = type(manager.model).__name__
    wrapped = RuntimeError(f"the engine of {name} ended in its own thread with {kind}: {error}")
    wrapped.__cause__ = error
    return wrapped


def _is_its_own(error) -> bool:
    """Whether the engine raised this itself, and not the model or a hook."""
    trace = error.__traceback__
    while trace.tb_next is not None:
        trace = trace.tb_next
    return ".continuous_batching." in trace.tb_frame.f_globals.get("__name__", "")


def _list_too_large(states, cache):
    """The requests that don't fit even if they have all pages: name, tokens, pages, num_blocks."""
    found = []
    for state in states:
        written, limit = len(state.generated_tokens), state.max_new_tokens
        # The last token is written and never fed.
        n_tokens = len(state.initial_tokens) + (written + 1 if limit is None else limit) - 1
        pages, blocks = count_pages(cache, n_tokens)
        if blocks > cache.num_blocks:
            found.append((state.request_id, n_tokens, pages, blocks))
    return found


def _say_too_large(too_large, cache):
    size = next(iter(cache.cache_allocators.values())).tokens_per_page
    shown = [
        f"{name!r} holds {pluralize(n_tokens, 'token')} at its end, which take "
        f"{pluralize(pages, 'page')} of {size}"
        for name, n_tokens, pages, _ in too_large[:_NAMES]
    ]
    if len(too_large) > _NAMES:
        shown.append(f"{len(too_large) - _NAMES} more don't fit either")
    blocks = max(needed for *_, needed in too_large)
    also = ", and layers with a window take more" if len(cache.cache_allocators) > 1 else ""
    return (
        f"num_blocks={cache.num_blocks} is too little for {pluralize(len(too_large), 'request')}: "
        f"{join(shown)}{also}. Set num_blocks={blocks} or more"
    )
