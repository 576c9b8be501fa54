"""One pass of a serving engine: who was fed what, and what is in each page; plain values only.

Steps, engines, rows, columns, positions and cells count from 0. Pages have the numbers that the
engine gives them. A page holds `page_size` tokens of one request for all layers that attend to
everything; where other layers have a window, their keys and values lie in pages of their own,
which aren't recorded.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from kvviz.arguments import check_whole, describe

PHASES = ("chunk", "prefill", "decode", "idle")


@dataclass(frozen=True)
class ServingRequest:
    """One request in one pass.

    Attributes:
        name: as the engine names it; unique in one engine.
        rows: how many tokens it was fed in this pass; 0 if it only keeps its pages.
        held_before, held: tokens that its pages hold before this pass, and once it has written.
            Tokens found in shared pages count as held before.
        phase: "chunk": rows of its prompt, with more of the prompt to come; "prefill": the rows
            that complete its prompt, all of it or the last piece, so its next token comes out;
            "decode": the one token that it wrote last; "idle": it holds pages and was fed nothing.
            When a request was put back, what it had written is fed again as part of its prompt.
        pages: its page table: the tokens at positions 0 to `page_size` - 1 are in the first.
        token_ids, positions: of each row.
    """

    name: str
    rows: int
    held_before: int
    held: int
    phase: str
    pages: tuple[int, ...]
    token_ids: tuple[int, ...]
    positions: tuple[int, ...]


class ServingRow(NamedTuple):
    """A row of a pass: the request that was fed it, its position in that request, its token."""

    request: str
    position: int
    token_id: int


class ServingColumn(NamedTuple):
    """A column of a pass's square.

    `request` is the request whose rows may see it. `page` and `cell` say where its key and value
    are (None in a layer with a window), and `requests` lists everybody whose page table has that
    page: a shared page gives each of them a column of its own, with the same `page` and `cell`.
    """

    request: str
    position: int
    page: int | None
    cell: int | None
    requests: tuple[str, ...]


@dataclass(frozen=True, repr=False, eq=False)
class ServingStep:
    """One pass of the engine, as it is once the pass has written its keys and values.

    Attributes:
        index: its number in the recording.
        engine: which of the engines started in the recording made this pass.
        requests: those fed, in the order of the pass's rows.
        idle: those that keep their pages and were fed nothing in this pass. With several answers
            to a prompt of one token, the engine gives it a page first, and feeds it once for each.
        page_size: tokens that a page has cells for.
        n_pages: pages that requests may use: each is owned, cached, free or lent.
        owners: page -> names of the requests that have it in their page table.
        fill: page -> cells filled, for each page that is owned or cached.
        free: pages that the next request may be given.
        cached: full pages that no request has, kept for one that begins with the same tokens.
        reserved: pages that the engine sets aside for padding, and that no request is ever given.
        lent: pages whose memory the layers with a window use now.
        waiting: names of the requests that have come and have no pages, the next one first.
        preempted: those of them that had pages in the step before: they were put back, and all
            that they held will be fed again.
        finished: names of the requests that have ended since the step before.
        windows: layer -> window, of the layers that have one.
        attention: layer -> (H, rows, columns) float32, of the layers kept; None if none were.

    >>> served[1]
    step 1: 6 rows: req_1 1 (decode), req_0 5 (prefill); 4 of 16 pages owned
    """

    index: int
    engine: int
    requests: tuple[ServingRequest, ...]
    idle: tuple[ServingRequest, ...]
    page_size: int
    n_pages: int
    owners: dict[int, tuple[str, ...]]
    fill: dict[int, int]
    free: tuple[int, ...]
    cached: tuple[int, ...]
    reserved: tuple[int, ...]
    lent: tuple[int, ...]
    waiting: tuple[str, ...]
    preempted: tuple[str, ...]
    finished: tuple[str, ...]
    windows: dict[int, int] = field(default_factory=dict)
    attention: dict[int, np.ndarray] | None = None

    def __repr__(self):
        fed = ", ".join(f"{each.name} {each.rows} ({each.phase})" for each in self.requests)
        used = f"{len(self.owners)} of {self.n_pages} pages owned"
        return f"step {self.index}: {self.rows} rows: {fed}; {used}"

    # -- requests ----------------------------------------------------------------------------

    @property
    def holding(self) -> tuple[ServingRequest, ...]:
        """All requests that hold pages: those fed, then those that are idle."""
        return self.requests + self.idle

    def request(self, name: str) -> ServingRequest:
        """The request of that name, if it holds pages in this step.

        Raises:
            ValueError: no such request holds pages.

        >>> served[1].request("req_0").held
        6
        """
        found = {each.name: each for each in self.holding}
        if not isinstance(name, str) or name not in found:
            have = ", ".join(found)
            raise ValueError(
                f"step {self.index}: no request {describe(name)} holds pages; these do: {have}"
            )
        return found[name]

    # -- pages -------------------------------------------------------------------------------

    @property
    def shared(self) -> dict[int, tuple[str, ...]]:
        """Pages that several requests have, and who.

        >>> list(served[2].shared.values())
        [('req_1', 'req_0')]
        """
        return {page: names for page, names in self.owners.items() if len(names) > 1}

    @property
    def allocated_cells(self) -> int:
        """Cells of all pages that requests have, a shared page counted once."""
        return len(self.owners) * self.page_size

    @property
    def held_cells(self) -> int:
        """Cells of these that are filled."""
        return sum(self.fill[page] for page in self.owners)

    @property
    def wasted_cells(self) -> int:
        """Cells of these that are empty.

        >>> served[1].allocated_cells, served[1].held_cells, served[1].wasted_cells
        (16, 14, 2)
        """
        return self.allocated_cells - self.held_cells

    def count_bytes(self) -> int:
        """About how many bytes the numbers of this step take; its attention isn't counted."""
        numbers = 2 * self.rows + 3 * len(self.fill) + len(self.free) + len(self.lent)
        numbers += sum(len(each.pages) + 8 for each in self.holding) + len(self.waiting)
        return 16 * numbers

    # -- the square of the pass ----------------------------------------------------------------

    @property
    def rows(self) -> int:
        """Tokens fed in this pass, all requests together."""
        return sum(each.rows for each in self.requests)

    def list_rows(self) -> tuple[ServingRow, ...]:
        """What each row is, in the order of the pass.

        >>> served[2].list_rows()[1]
        ServingRow(request='req_0', position=6, token_id=91)
        """
        return tuple(
            ServingRow(each.name, position, token)
            for each in self.requests
            for position, token in zip(each.positions, each.token_ids, strict=True)
        )

    def list_columns(self, layer: int | None = None) -> tuple[ServingColumn, ...]:
        """What each column is, in the order of `attention[layer]`: a block for each request.

        A layer with a window reads the last positions only. None stands for any layer without.

        Raises:
            ValueError: `layer` is neither a whole number of at least 0 nor None.

        >>> column = served[2].list_columns()[0]
        >>> column.position, column.cell, column.requests
        (0, 0, ('req_1', 'req_0'))
        """
        window = self._find_window(layer)
        columns = []
        for each in self.requests:
            first = 0 if window is None else max(0, each.held_before - window + 1)
            for position in range(first, each.held):
                page, cell, names = None, None, (each.name,)
                if window is None:
                    page, cell = each.pages[position // self.page_size], position % self.page_size
                    names = self.owners[page]
                columns.append(ServingColumn(each.name, position, page, cell, names))
        return tuple(columns)

    def _find_window(self, layer: int | None) -> int | None:
        if layer is None:
            return None
        return self.windows.get(check_whole("layer", layer, least=0))

    def find_visible(self, layer: int | None = None) -> np.ndarray:
        """(rows, columns) bool: where a row may see a column.

        A row sees the columns of its own request up to its own position, and in a layer with a
        window only the last ones of these.

        Raises:
            ValueError: as `list_columns`.

        >>> served[2].find_visible().sum(axis=1)
        array([9, 7])
        """
        rows, columns = self.list_rows(), self.list_columns(layer)
        names = {name: n for n, name in enumerate(each.name for each in self.requests)}
        row_names = np.array([names[row.request] for row in rows])[:, None]
        column_names = np.array([names[column.request] for column in columns])[None]
        gaps = np.array([row.position for row in rows])[:, None]
        gaps = gaps - np.array([column.position for column in columns])[None]
        visible = (row_names == column_names) & (gaps >= 0)
        window = self._find_window(layer)
        return visible if window is None else visible & (gaps < window)
