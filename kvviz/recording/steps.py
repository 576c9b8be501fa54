"""What every recording is: steps in order, the text of their tokens, a limit, and a table."""

from __future__ import annotations

import html
from collections.abc import Sequence

from kvviz.arguments import check_whole, describe, is_whole
from kvviz.count import in_units
from kvviz.tokens import piece


def check_tokenizer(tokenizer):
    """`tokenizer`, if it can give a token its text, or None.

    Raises:
        TypeError: it can't.
    """
    known = callable(getattr(tokenizer, "decode", None)) and not isinstance(tokenizer, bytes | type)
    if tokenizer is not None and not known:
        raise TypeError(
            "tokenizer: expected one of transformers, as load_model returns it, but got "
            f"{describe(tokenizer)}"
        )
    return tokenizer


class Steps(Sequence):
    """A sequence of steps, shown as a table with a line for each.

    A kind of recording names its table's `_COLUMNS`, writes a line in `_write_line` and the last
    line in `_summarize`. A column of `_OPTIONAL` is left out where it has no text in any line.

    Raises:
        TypeError: `tokenizer` can't give a token its text.
        ValueError: `max_bytes` isn't a whole number of at least 0.
    """

    _COLUMNS: tuple[str, ...] = ()
    _OPTIONAL: tuple[str, ...] = ()
    _SHOWN = 12  # steps in a table before the middle is left out

    def __init__(self, *, tokenizer=None, max_bytes: int = 2**30):
        self._steps: list = []
        self._tokenizer = check_tokenizer(tokenizer)
        self._texts: dict[int, str] = {}
        self.max_bytes = check_whole("max_bytes", max_bytes, least=0)
        self.bytes_kept = 0

    def __getitem__(self, index):
        """A step, or a list of steps for a slice; a negative number counts from the end.

        Raises:
            TypeError: neither a whole number nor a slice of whole numbers.
            IndexError: there is no such step; a loop over the steps ends with it.
        """
        parts = (index.start, index.stop, index.step) if isinstance(index, slice) else (index,)
        if not all(is_whole(part) or part is None and len(parts) > 1 for part in parts):
            came = describe(index)
            raise TypeError(f"expected a step's number or a slice, but got {came}")
        if isinstance(index, slice):
            return self._steps[index]
        if not -len(self) <= index < len(self):
            have = f"steps 0 to {len(self) - 1}" if len(self) else "no steps yet"
            raise IndexError(f"step {describe(index)}: this recording has {have}")
        return self._steps[int(index)]

    def __len__(self):
        return len(self._steps)

    def label(self, token: int) -> str:
        """The text of a token id; its number without a tokenizer, "?" for an unknown token (-1).

        Raises:
            ValueError: no whole number.

        >>> run.label(17)
        '17'
        """
        if (token := check_whole("token", token)) < 0:
            return "?"
        if token not in self._texts:
            text = str(token) if self._tokenizer is None else piece(self._tokenizer, token)
            self._texts[token] = text
        return self._texts[token]

    def reserve(self, n_bytes: int):
        """Count bytes that are about to be copied.

        Raises:
            ValueError: no whole number of bytes.
            MemoryError: they would go over the limit.
        """
        n_bytes = check_whole("n_bytes", n_bytes, least=0)
        if self.bytes_kept + n_bytes > self.max_bytes:
            now, then, limit = self.bytes_kept, self.bytes_kept + n_bytes, self.max_bytes
            raise MemoryError(
                f"step {len(self)} would take this recording from {in_units(now)} to "
                f"{in_units(then)}, over its limit of {in_units(limit)}: "
                "keep fewer layers (layers=...), counts only (keep=()), or raise max_bytes"
            )
        self.bytes_kept += n_bytes

    def _write_line(self, step) -> list[str]:
        raise NotImplementedError

    def _summarize(self) -> str:
        raise NotImplementedError

    def _list_lines(self) -> list[list[str]]:
        """The table's names, and then its lines: a text for each column.

        A line that stands for many has only one text.
        """
        lines = [self._write_line(step) for step in self]
        kept = [n for n in range(len(self._COLUMNS)) if self._is_shown(n, lines)]
        if len(lines) > self._SHOWN:
            middle = len(lines) - self._SHOWN + 1
            lines = [*lines[: self._SHOWN - 4], [f"... {middle} more ..."], *lines[-3:]]
        whole = [[line[n] for n in kept] if len(line) > 1 else line for line in lines]
        return [[self._COLUMNS[n] for n in kept], *whole]

    def _is_shown(self, n: int, lines) -> bool:
        return self._COLUMNS[n] not in self._OPTIONAL or any(line[n] for line in lines)

    def __repr__(self):
        lines = self._list_lines()
        whole = [line for line in lines if len(line) > 1]
        widths = [max(map(len, column)) for column in zip(*whole, strict=True)]
        shown = []
        for line in lines:
            cells = zip(line, widths, strict=True) if len(line) > 1 else [(line[0], 0)]
            shown.append("  ".join(text.rjust(width) for text, width in cells))
        return "\n".join([*shown, self._summarize()])

    def _repr_html_(self):
        columns, *lines = self._list_lines()
        rows = [
            "".join(f"<td>{html.escape(text)}</td>" for text in line)
            if len(line) > 1
            else f'<td colspan="{len(columns)}">{line[0]}</td>'
            for line in lines
        ]
        names = "".join(f'<th scope="col">{name}</th>' for name in columns)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        caption = f"<caption>{html.escape(self._summarize())}</caption>"
        return f"<table>{caption}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"
