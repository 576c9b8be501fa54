"""A recording: a `Run` of steps, shown as a table, saved in one file."""

from __future__ import annotations

from pathlib import Path

from kvviz import progress
from kvviz.arguments import describe
from kvviz.recording.step import Step
from kvviz.recording.steps import Steps
from kvviz.recording.storage import read_steps, write_steps
from kvviz.recording.telling_head import find_telling_head
from kvviz.tokens import is_bytes, join_pieces, quoted
from kvviz.words import pluralize

MOST_PIECES = 8  # tokens that tell which character the last of them ends


class Run(Steps):
    """A recording: one `Step` for each forward pass, in order. Shown as a table, one line a step.

    All tensors are float32 copies on the CPU: what a step shows does not change when the model
    runs on. `save` and `Run.load` keep a run in one `.npz` file.

    >>> len(run), run[1]
    (5, step 1: fed 1, held 6 before and 7 after, newest at position 6)

    Raises:
        TypeError: `tokenizer` can't give a token its text.
        ValueError: `max_bytes` isn't a whole number of at least 0.
    """

    _COLUMNS = ("step", "fed", "cropped", "visible", "held before", "held after", "bytes", "newest")
    _OPTIONAL = ("cropped",)

    def __init__(self, *, tokenizer=None, max_bytes: int = 2**30):
        super().__init__(tokenizer=tokenizer, max_bytes=max_bytes)
        self._progress = None

    @property
    def rows(self) -> list[int]:
        """Rows computed in each step.

        >>> run.rows, uncached.rows
        ([6, 1, 1, 1, 1], [6, 7, 8, 9, 10])
        """
        return [step.rows for step in self]

    @property
    def cropped(self) -> list[int | None]:
        """Rows of each step that were taken out of the cache before a later step read them.

        None where nothing went on from a step, as from the last one.

        >>> run.cropped, uncached.cropped
        ([0, 0, 0, 0, None], [None, None, None, None, None])
        """
        return [step.cropped for step in self]

    @property
    def positions(self) -> int:
        """Token positions that the model ran over, all steps together.

        >>> run.positions, uncached.positions
        (10, 40)
        """
        return sum(self.rows)

    @property
    def cells(self) -> int:
        """Cells of one head's causal square, all steps together.

        >>> run.cells, uncached.cells
        (55, 185)
        """
        return sum(step.cells for step in self)

    def choose_head(self, layers=None, sequence: int = 0) -> tuple[int, int]:
        """The (layer, head) that attends most to a single token further back.

        Whatever the text says, many heads attend to the first token, to the row's own or to the one
        before it. So these three don't count. Of the others, it's the largest share in the newest
        row, averaged over the steps.

        Args:
            layers: layers to choose from; by default, all that were kept.
            sequence: which sequence of the batch.

        Raises:
            ValueError: attention wasn't kept for any of the layers, or there is no such sequence.

        >>> run.choose_head() in [(layer, head) for layer in range(3) for head in range(6)]
        True
        """
        return find_telling_head(self, layers, sequence)

    def save(self, path) -> Path:
        """Write the whole run to one `.npz` file; nothing is left behind if writing fails.

        Raises:
            TypeError: `path` isn't a file's name.
            ValueError: the name doesn't end in .npz.
            OSError: the file can't be written.

        >>> run.save("mine.npz").name
        'mine.npz'
        """
        return write_steps(path, self, self._texts, self.max_bytes)

    @classmethod
    def load(cls, path) -> Run:
        """Read a run that `save` wrote.

        Raises:
            TypeError: `path` isn't a file's name.
            OSError: there is no such file, it's a folder, or it can't be read.
            ValueError: it is not a recording, or one that another version wrote.

        >>> kv.Run.load(run.save("mine.npz")).rows
        [6, 1, 1, 1, 1]
        """
        saved = read_steps(path)
        run = cls(max_bytes=saved.max_bytes)
        run._texts = saved.texts
        for index, fields in enumerate(saved.steps):
            run._steps.append(Step(index=index, run=run, label=run.label, **fields))
        return run

    # -- filled by `record` ----------------------------------------------------------------

    def append(self, step: Step):
        """Add a step, and show progress if the recording takes long.

        Raises:
            TypeError: no `Step`.
        """
        if not isinstance(step, Step):
            raise TypeError(f"step: expected a Step, but got {describe(step)}")
        for sequence in step.token_ids.tolist():
            for token in sequence:
                self.label(token)  # while the tokenizer is there: a saved run has only its texts
        self._steps.append(step)
        if self._progress is None:
            self._progress = progress.bar(desc="recorded", unit=" steps")
        self._progress.update()

    def close(self):
        """End the progress bar."""
        if self._progress is not None:
            self._progress.close()
            self._progress = None

    # -- shown -----------------------------------------------------------------------------

    def _write_line(self, step: Step) -> list[str]:
        numbers = step.visible, step.held_before, step.held_after
        newest = quoted(self._label_newest(step), '"')
        n_bytes = "not known" if step.bytes is None else f"{step.bytes:,}"
        first = [str(step.index), str(step.fed), str(step.cropped or "")]
        return [*first, *map(str, numbers), n_bytes, newest]

    def _label_newest(self, step: Step) -> str:
        label = self.label(int(step.token_ids[0, -1]))
        if not is_bytes(label):
            return label
        return join_pieces([self.label(token) for token in step.tokens()[-MOST_PIECES:]])[-1]

    def _summarize(self):
        steps = pluralize(len(self), "step")
        return f"{steps}, {self.positions:,} positions computed, {self.cells:,} cells of the square"
