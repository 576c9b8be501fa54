"""A recording: a `Run` of steps, shown as a table, kept in one file."""

from __future__ import annotations

import html
import io
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from kvviz import files, progress
from kvviz.count import in_units
from kvviz.recording.step import Step, same_columns
from kvviz.tokens import piece, quoted

_ROOT = 0x9E3779B97F4A7C15  # where every prefix's hash starts
_LOOKED_AT = 512  # keys remembered, to know them again where they do not belong
_SHOWN = 12  # steps in a table before the middle is left out


class Run(Sequence):
    """A recording: one `Step` a forward pass, in order. Shown as a table, a step a line.

    All tensors are float32 copies on the CPU: what a step shows does not change when the model
    runs on. `save` and `Run.load` keep a run in one `.npz` file.
    """

    def __init__(self, *, tokenizer=None, max_bytes=2**30):
        self._steps: list[Step] = []
        self._tokenizer = tokenizer
        self._pieces: dict[int, str] = {}
        self._computed: dict[int, torch.Tensor] = {}  # hash of a prefix -> its last key's witness
        self._written: list[tuple[torch.Tensor, int]] = []  # witness and token of each new key
        self._progress = None
        self.max_bytes = max_bytes
        self.bytes_kept = 0

    def __getitem__(self, index):
        if isinstance(index, slice):
            return self._steps[index]
        if not -len(self) <= index < len(self):
            have = f"steps 0 to {len(self) - 1}" if len(self) else "no steps yet"
            raise IndexError(f"step {index}: this recording has {have}")
        return self._steps[index]

    def __len__(self):
        return len(self._steps)

    @property
    def rows(self) -> list[int]:
        """Rows computed in each step."""
        return [step.rows for step in self]

    @property
    def positions(self) -> int:
        """Token positions the model ran over, all steps together."""
        return sum(self.rows)

    @property
    def cells(self) -> int:
        """Cells of one head's causal square, all steps together."""
        return sum(step.cells for step in self)

    def label(self, token: int) -> str:
        """The text of a token id; its number where there is no tokenizer."""
        if token < 0:
            return "?"
        if token not in self._pieces:
            text = str(token) if self._tokenizer is None else piece(self._tokenizer, token)
            self._pieces[token] = text
        return self._pieces[token]

    # -- filled by `record` ----------------------------------------------------------------

    def reserve(self, n_bytes):
        """Count bytes about to be copied, and refuse them over the limit."""
        if self.bytes_kept + n_bytes > self.max_bytes:
            now, then, limit = self.bytes_kept, self.bytes_kept + n_bytes, self.max_bytes
            raise MemoryError(
                f"step {len(self)} would take this recording from {in_units(now)} to "
                f"{in_units(then)}, over its limit of {in_units(limit)}: "
                "keep fewer layers (layers=...), counts only (keep=()), or raise max_bytes"
            )
        self.bytes_kept += n_bytes

    def append(self, step: Step):
        """Take in one finished forward pass: find where its columns came from."""
        step.run, step.index = self, len(self)
        self.reserve(step.witness.numel() * 4)
        self._find_parents(step)
        self._find_moved(step)
        self._find_repeats(step)
        for row in step.token_ids.tolist():
            for token in row:
                self.label(token)
        self._steps.append(step)
        if self._progress is None:
            self._progress = progress.bar(desc="recorded", unit=" steps")
        self._progress.update()

    def close(self):
        if self._progress is not None:
            self._progress.close()
            self._progress = None

    def _find_parents(self, step):
        """Which earlier step left the store that this one reads, by the keys in it.

        A cache may be copied, or its batch rows reordered: only what it holds is looked at.
        """
        n_batch, held = step.token_ids.shape[0], step.held_before
        step.parents = [None] * n_batch
        step.known = torch.zeros(n_batch, held, dtype=torch.bool)
        if not held:
            return
        candidates = [s for s in reversed(self._steps) if s.visible == held]
        for batch in range(n_batch):
            for parent in candidates:
                n_rows = parent.token_ids.shape[0]
                order = sorted(range(n_rows), key=lambda row: row != batch)  # its own row first
                same = [same_columns(step, batch, parent, row) for row in order]
                best = max(range(n_rows), key=lambda i: int(same[i].sum()))
                if same[best].any():
                    step.parents[batch] = (parent.index, order[best])
                    step.known[batch] = same[best]
                    break

    def _find_moved(self, step):
        """Where the store holds its columns in another order, or twice: what token each one is.

        Known by its key, wherever it was written; as many as were fed are like none before, and
        those are the new ones. Looked for only where columns are not as they were left.
        """
        n_batch, fed = step.token_ids.shape
        for batch in range(n_batch):
            keys, own = step.witness[batch], slice(step.visible - fed, step.visible)
            if len(keys) != step.visible:
                continue
            if not bool(step.known[batch].all()) and self._written:
                before = torch.stack([key for key, _ in self._written])
                near = (keys[:, None] - before).abs().amax(-1) <= 1e-4 * before.abs().max()
                found = near.any(-1)
                if int((~found).sum()) == fed:
                    tokens = torch.tensor([token for _, token in self._written])
                    if step.moved is None:
                        step.moved = torch.full((n_batch, step.visible), -1)
                    step.moved[batch] = tokens[near.long().argmax(-1)]
                    own = (~found).nonzero()[:, 0]
                    step.moved[batch, own] = -2 - torch.arange(fed)  # which row wrote it
            if batch == 0 and len(self._written) < _LOOKED_AT:
                self._written += zip(keys[own], step.token_ids[batch].tolist(), strict=True)

    def _find_repeats(self, step):
        """Mark the rows that an earlier step computed: same tokens, places, positions and key."""
        n_batch, fed = step.token_ids.shape
        step.recomputed = torch.zeros(n_batch, fed, dtype=torch.bool)
        witness = step.witness[:, : step.visible][:, -fed:]  # a static store has empty slots after
        scale = witness.abs().max()
        for batch in range(n_batch):
            parent = step.parents[batch]
            prefix = _ROOT if parent is None else self[parent[0]].hashes[parent[1]]
            if parent is None and step.held_before:
                prefix = hash((_ROOT, step.index))  # a past we have not seen: nothing is a repeat
            rows = zip(
                step.token_ids[batch].tolist(), step.position_ids[batch].tolist(), strict=True
            )
            for row, token_and_position in enumerate(rows):
                prefix = hash((prefix, *token_and_position))
                key = witness[batch, row] if witness.shape[1] == fed else None
                seen = self._computed.get(prefix)
                if seen is None:
                    self._computed[prefix] = key
                elif key is not None:
                    step.recomputed[batch, row] = bool((key - seen).abs().max() <= 1e-3 * scale)
            step.hashes.append(prefix)

    # -- shown and kept --------------------------------------------------------------------

    def _table(self):
        head = ("step", "fed", "rows", "columns", "held before", "held after", "bytes", "newest")
        lines = []
        for step in self:
            newest = quoted(self.label(int(step.token_ids[0, -1])), '"')
            numbers = (step.index, step.fed, step.rows, step.visible, step.held_before)
            lines.append([*map(str, numbers), str(step.held_after), f"{step.bytes:,}", newest])
        if len(lines) > _SHOWN:
            middle = len(lines) - _SHOWN + 1
            gap = [f"... {middle} more ...", *[""] * (len(head) - 1)]
            lines = [*lines[: _SHOWN - 4], gap, *lines[-3:]]
        return head, lines

    def _summary(self):
        steps = f"{len(self)} step{'s' * (len(self) != 1)}"
        return f"{steps}, {self.positions:,} positions computed, {self.cells:,} cells of the square"

    def __repr__(self):
        head, lines = self._table()
        widths = [max(len(line[i]) for line in [head, *lines] if line[1] or i) for i in range(8)]
        rows = [
            "  ".join(text.rjust(width) for text, width in zip(line, widths, strict=True))
            if line[1]
            else line[0]
            for line in [head, *lines]
        ]
        return "\n".join([*rows, self._summary()])

    def _repr_html_(self):
        head, lines = self._table()
        rows = [
            "".join(f"<td>{html.escape(text)}</td>" for text in line)
            if line[1]
            else f'<td colspan="8">{line[0]}</td>'
            for line in lines
        ]
        names = "".join(f'<th scope="col">{name}</th>' for name in head)
        body = "".join(f"<tr>{row}</tr>" for row in rows)
        caption = f"<caption>{self._summary()}</caption>"
        return f"<table>{caption}<thead><tr>{names}</tr></thead><tbody>{body}</tbody></table>"

    def save(self, path) -> Path:
        """Write the whole run to one `.npz` file; nothing is left behind if writing fails."""
        path = Path(path)
        if path.suffix != ".npz":
            raise ValueError(f"a recording is kept in a .npz file, and got {path.name!r}")
        arrays, steps = {}, []
        for step in self:
            plain = {name: getattr(step, name) for name in _PLAIN}
            steps.append(plain | {"hashes": []})
            for name in _ARRAYS:
                if getattr(step, name) is not None:
                    arrays[f"{step.index}/{name}"] = getattr(step, name).numpy()
            for name, by_layer in step.kept.items():
                for layer, tensor in by_layer.items():
                    arrays[f"{step.index}/kept/{name}/{layer}"] = tensor.numpy()
        meta = {"kvviz": 1, "steps": steps, "pieces": self._pieces, "max_bytes": self.max_bytes}
        whole = io.BytesIO()
        np.savez_compressed(whole, meta=json.dumps(meta), **arrays)
        return files.write_whole(path, whole.getvalue())

    @classmethod
    def load(cls, path) -> Run:
        """Read a run that `save` wrote.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is not a recording.
        """
        try:
            with np.load(path, allow_pickle=False) as file:
                meta = json.loads(str(file["meta"]))
                arrays = {name: torch.from_numpy(file[name]) for name in file.files[1:]}
            run = cls(max_bytes=meta["max_bytes"])
            run._pieces = {int(token): text for token, text in meta["pieces"].items()}
            for index, plain in enumerate(meta["steps"]):
                run._steps.append(_restored(run, index, plain, arrays))
        except FileNotFoundError:
            raise
        except Exception as error:
            raise ValueError(f"{path} is not a recording that Run.save wrote ({error})") from error
        return run


_PLAIN = ("held_before", "before", "after", "bytes", "slots", "parents", "gaps")
_PLAIN += ("rows_by_layer", "columns_by_layer")
_ARRAYS = ("token_ids", "position_ids", "pads", "witness", "known", "recomputed", "moved")


def _restored(run, index, plain, arrays):
    plain = dict(plain)
    for name in ("before", "after", "gaps", "rows_by_layer", "columns_by_layer"):
        plain[name] = {int(layer): value for layer, value in plain[name].items()}
    plain["parents"] = [parent and tuple(parent) for parent in plain["parents"]]
    kept = {}
    for name in [name for name in arrays if name.startswith(f"{index}/kept/")]:
        _, _, what, layer = name.split("/")
        kept.setdefault(what, {})[int(layer)] = arrays[name]
    tensors = {name: arrays.get(f"{index}/{name}") for name in _ARRAYS}
    return Step(run=run, index=index, kept=kept, **plain, **tensors)
