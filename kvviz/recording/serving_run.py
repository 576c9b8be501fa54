"""A recording of a serving engine: a `ServingRun` of steps, and the requests it served."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from kvviz.arguments import check_whole, describe, list_several
from kvviz.recording.serving_step import ServingStep
from kvviz.recording.serving_storage import read_serving, write_serving
from kvviz.recording.steps import Steps
from kvviz.words import pluralize


@dataclass(frozen=True)
class ServedRequest:
    """One request, from when it was first seen to the end of the recording.

    Attributes:
        name: as the engine names it.
        engine: which of the engines started in the recording served it.
        prompt_ids, new_ids: the tokens it came with, and those it was given.
        prompt, text: the same as text.
        finished: whether it was served to its end; False if it was stopped, or failed.
        seen, fed: numbers of the steps that it was waiting or in an engine, and that fed it.
    """

    name: str
    engine: int
    prompt_ids: tuple[int, ...]
    new_ids: tuple[int, ...]
    prompt: str
    text: str
    finished: bool
    seen: tuple[int, ...]
    fed: tuple[int, ...]

    @property
    def token_ids(self) -> tuple[int, ...]:
        """All its tokens, each at its position."""
        return self.prompt_ids + self.new_ids


class ServingRun(Steps):
    """What a serving engine did: one `ServingStep` for each pass, in order, shown as a table.

    Steps hold plain values, copied when the pass began: they don't change when the engine goes on.
    `save` and `ServingRun.load` keep a run in one `.npz` file.

    >>> [step.rows for step in served]
    [8, 6, 2, 1]

    Raises:
        TypeError: `tokenizer` can't give a token its text.
        ValueError: `max_bytes` isn't a whole number of at least 0.
    """

    _COLUMNS = ("step", "rows", "fed", "owned", "shared", "cached", "free", "empty cells", "news")
    _SHOWN = 48

    def __init__(self, *, tokenizer=None, max_bytes: int = 2**30):
        super().__init__(tokenizer=tokenizer, max_bytes=max_bytes)
        self._requests: list[ServedRequest] = []
        self._list_requests: Callable[[], list[ServedRequest]] | None = None  # while it's recorded

    @property
    def requests(self) -> tuple[ServedRequest, ...]:
        """Every request that an engine knew of, in the order of their first step.

        >>> [(each.name, each.finished, each.fed) for each in served.requests]
        [('req_1', True, (0, 1, 2)), ('req_0', True, (0, 1, 2, 3))]
        """
        listed = self._requests if self._list_requests is None else self._list_requests()
        return tuple(listed)

    @property
    def engines(self) -> tuple[int, ...]:
        """The numbers of the engines that made passes, each start counted.

        >>> served.engines
        (0,)
        """
        return tuple(dict.fromkeys(step.engine for step in self))

    def find_request(self, name: str, step: int | ServingStep | None = None) -> ServedRequest:
        """The request of that name; `step` tells apart requests that had one name in turn.

        Raises:
            ValueError: there is no such request or step, or there are several and no step to
                choose by.

        >>> served.find_request("req_0").new_ids
        (91, 21, 62)
        """
        found = [each for each in self.requests if isinstance(name, str) and each.name == name]
        if step is not None:
            index = step.index if isinstance(step, ServingStep) else check_whole("step", step)
            if not 0 <= index < len(self):
                raise ValueError(f"step {index}: this recording has steps 0 to {len(self) - 1}")
            found = [each for each in found if index in each.seen]
        if len(found) == 1:
            return found[0]
        where = "" if step is None else f" in step {index}"
        if found:
            raise ValueError(f"{len(found)} requests are named {name!r}: say which step you mean")
        have = ", ".join(dict.fromkeys(each.name for each in self.requests)) or "none"
        raise ValueError(f"no request {describe(name)}{where}: this recording has {have}")

    def read_text(self, token_ids) -> str:
        """Tokens as text; their numbers, if there is no tokenizer.

        Raises:
            ValueError: no list of token ids.
        """
        token_ids = list_several("token_ids", token_ids, "a list of token ids")
        token_ids = [check_whole("token_ids", token) for token in token_ids]
        if self._tokenizer is None:
            return " ".join(map(str, token_ids))
        return self._tokenizer.decode(token_ids, clean_up_tokenization_spaces=False)

    def save(self, path) -> Path:
        """Write the whole run to one `.npz` file; nothing is left behind if writing fails.

        Raises:
            TypeError: `path` isn't a file's name.
            ValueError: the name doesn't end in .npz.
            OSError: the file can't be written.

        >>> served.save("engine.npz").name
        'engine.npz'
        """
        return write_serving(path, self, self.requests, self._texts, self.max_bytes)

    @classmethod
    def load(cls, path) -> ServingRun:
        """Read a run that `save` wrote.

        Raises:
            TypeError: `path` isn't a file's name.
            OSError: there is no such file, it's a folder, or it can't be read.
            ValueError: it is not a recording of an engine, or one that another version wrote.

        >>> len(kv.ServingRun.load(served.save("engine.npz")))
        4
        """
        saved = read_serving(path)
        run = cls(max_bytes=saved.max_bytes)
        run._texts, run._steps = saved.texts, saved.steps
        run._requests = [ServedRequest(**fields) for fields in saved.requests]
        return run

    # -- filled by `record_serving` ------------------------------------------------------------

    def open(self, list_requests: Callable[[], list[ServedRequest]]):
        """Ask this function for the requests until the recording ends.

        Raises:
            TypeError: no function.
        """
        if not callable(list_requests):
            came = describe(list_requests)
            raise TypeError(f"list_requests: expected a function, but got {came}")
        self._list_requests = list_requests

    def append(self, step: ServingStep):
        """Add a step.

        Raises:
            TypeError: no `ServingStep`.
        """
        if not isinstance(step, ServingStep):
            raise TypeError(f"step: expected a ServingStep, but got {describe(step)}")
        self._steps.append(step)

    def close(self):
        """Keep the requests as they are now, and the text of every token."""
        if self._list_requests is not None:
            self._requests, self._list_requests = self._list_requests(), None
        for each in self._requests:
            for token in each.token_ids:
                self.label(token)

    # -- shown -----------------------------------------------------------------------------------

    def _write_line(self, step: ServingStep) -> list[str]:
        fed = ", ".join(f"{each.name} {each.rows} {each.phase}" for each in step.requests)
        pages = (len(step.owners), len(step.shared), len(step.cached), len(step.free))
        idle = [each.name for each in step.idle]
        news = [("done", step.finished), ("put back", step.preempted), ("idle", idle)]
        news += [("waiting", [name for name in step.waiting if name not in step.preempted])]
        news = "; ".join(f"{what} {', '.join(names)}" for what, names in news if names)
        numbers = [*map(str, pages), str(step.wasted_cells)]
        return [str(step.index), str(step.rows), fed, *numbers, news]

    def _summarize(self):
        if not len(self):
            return "no steps: no engine ran in this recording"
        steps, requests = pluralize(len(self), "step"), pluralize(len(self.requests), "request")
        rows = sum(step.rows for step in self)
        sizes = sorted({(step.n_pages, step.page_size) for step in self})
        pages = " or ".join(f"{pluralize(n, 'page')} of {size} tokens" for n, size in sizes)
        engines = "" if len(self.engines) == 1 else f", {len(self.engines)} engines"
        return f"{steps}, {requests}, {rows:,} rows computed, {pages}{engines}"
