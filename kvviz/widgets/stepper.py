"""`stepper`: move through a recording step by step, with buttons, slider, menus and keyboard.

The state is in Python: `step`, `layer`, `head` and `cached` are traits, and the browser only shows
them. It requests one frame at a time, the one it needs now, and keeps the frames it was sent.
"""

from collections.abc import Sequence
from pathlib import Path

import anywidget
import traitlets

from kvviz.arguments import check_whole
from kvviz.drawing import figures, picture
from kvviz.recording.run import Run
from kvviz.widgets import page
from kvviz.widgets.frames import Frames

STRIP = (6, 5, 4, 3)  # how many steps the still picture shows: the first of these that fits
STRIP_COLUMNS = 70  # columns that fit into its width


class Stepper(anywidget.AnyWidget):
    """What `stepper` returns: set its traits, read its `sentence` and its `frame`."""

    _esm = Path(__file__).with_name("stepper.js")
    _css = Path(__file__).with_name("stepper.css")
    step = traitlets.Int().tag(sync=True)
    layer = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    cached = traitlets.Bool().tag(sync=True)
    _about = traitlets.Dict().tag(sync=True)

    def __init__(
        self,
        runs: dict[bool, Run],
        heads: dict[int, int],
        *,
        step: int,
        layer: int,
        head: int,
        cached: bool,
        sequence: int,
        beside: bool,
    ):
        self.runs, self.heads = runs, heads
        self._steps = len(next(iter(runs.values())))
        self._frames = Frames(runs, heads, sequence=sequence, beside=beside)
        width, height = self._frames.size
        about = {
            "steps": self._steps,
            "heads": [(layer, list(range(n))) for layer, n in heads.items()],
            "switch": len(runs) > 1 and not beside,
            "width": width,
            "height": height,
            "longest": self._frames.longest,
            "overview": max(heads.values()) > 1,  # whether there is a view of all heads
        }
        super().__init__(step=step, layer=layer, head=head, cached=cached, _about=about)
        self.on_msg(self._send_answer)

    # -- state -------------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        """What the frame shows, in words."""
        return self._frames.sentence(*self._key)

    @property
    def frame(self) -> bytes:
        """The picture as PNG bytes; all frames of a stepper have one size."""
        return self._frames.frame(*self._key)[0]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of every frame on the screen, in pixels."""
        return self._frames.size

    @property
    def _key(self) -> tuple[bool, int, int, int]:
        return self.cached, self.layer, self.head, self.step

    @traitlets.validate("step", "layer", "head", "cached")
    def _validate(self, proposal):
        name, value = proposal.trait.name, proposal.value
        try:
            if name == "step":
                check_step(value, self._steps)
            elif name == "layer":
                check_layer(value, self.heads)
            elif name == "head":
                check_head(value, self.layer, self.heads)
            else:
                check_switch(value, self.runs)
        except ValueError as error:
            raise traitlets.TraitError(str(error)) from None
        return value

    @traitlets.observe("layer")
    def _keep_head(self, change):
        self.head = min(self.head, self.heads[self.layer] - 1)

    # -- the browser -------------------------------------------------------------------------

    def _send_answer(self, _, request, buffers):
        if answer := self.answer(request):
            self.send(*answer)

    def answer(self, request: dict) -> tuple[dict, list[bytes]] | None:
        """The message and pictures that answer a request, in JupyterLab and in a saved page.

        {"frame": [cached, layer, head, step]} requests one frame and its cells, and {"heads":
        [cached, layer, step]} all heads of a layer, each with its box in the picture. If a frame
        can't be drawn, the answer is the error, which the widget shows.
        """
        frame, heads = request.get("frame"), request.get("heads")
        if frame is None and heads is None:
            return None
        try:
            if frame is not None:
                png, sentence = self._frames.frame(*frame)
                cells = self._frames.cells(*frame)
                return {**request, "sentence": sentence, "cells": cells}, [png]
            png, sentence, boxes = self._frames.heads(*heads)
            return {**request, "sentence": sentence, "boxes": boxes}, [png]
        except Exception as error:
            step = (frame or heads)[-1]
            message = f"step {step} could not be drawn: {type(error).__name__}: {error}"
            return {**request, "error": message}, []

    def save(self, path, heads: dict | None = None) -> Path:
        """Write this stepper as one web page that needs no kernel and no network.

        The page starts at the stepper's own step, layer and head. It holds as many heads as fit
        into about two megabytes: those you ask for, then the rest of the first one's layer,
        then the same head in the first and the last layer.

        Args:
            heads: what the page should hold first, {layer: heads}.

        Raises:
            ValueError: the name doesn't end in .html, or there is no such layer or head.
            OSError: the file can't be written; an older file of that name is left as it was.

        >>> kv.stepper(run, step=1).save("mine.html").name
        'mine.html'
        """
        return page.save(self, path, heads)

    def close(self):
        """Forget the frames and disconnect from the browser."""
        self._frames.clear()
        super().close()

    # -- where no widget runs ----------------------------------------------------------------

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, **kwargs):
        live, metadata = super()._repr_mimebundle_(**kwargs)
        try:
            still, of_still = self._draw_strip()._repr_mimebundle_()
        except Exception as error:  # the widget still shows the steps that can be drawn
            return {**live, "text/plain": f"{type(error).__name__}: {error}"}, metadata
        return {**still, **live, "text/plain": self.sentence}, {**of_still, **metadata}

    def _draw_strip(self) -> picture.Picture:
        """The steps around this one, from both runs if there are two."""
        for many in STRIP:
            first = max(0, min(self.step - many // 2, self._steps - many))
            steps = range(first, min(first + many, self._steps))
            if many * self.runs[self.cached][steps[-1]].visible <= STRIP_COLUMNS:
                break
        return figures.draw_filmstrip(
            self.runs.get(True, self.runs[self.cached]),
            uncached=self.runs[False] if len(self.runs) > 1 else None,
            steps=steps,
            layer=self.layer,
            head=self.head,
            sequence=self._frames.sequence,
        )


def stepper(run, uncached=None, *, step=0, layer=None, head=0, sequence=0, beside=False) -> Stepper:
    """Move through a recording step by step: buttons, slider, menus, arrow keys, Home and End.

    You can read and set `step`, `layer`, `head` and `cached` of the result; its `sentence` and
    `frame` (PNG bytes) follow. Where no widget runs, the cell shows some of the steps as a picture.

    Args:
        run: a recording that kept attention.
        uncached: a recording of the same prompt and the same number of steps without a cache; a
            switch changes from one to the other.
        step, layer, head: where to start, counted from 0. By default step 0, the first layer that
            was kept, and head 0.
        sequence: which sequence of the batch, counted from 0.
        beside: show both recordings beside each other instead of a switch.

    Raises:
        TypeError: `run` or `uncached` isn't a recording.
        ValueError: a recording has no steps or no attention, the two recordings don't belong
            together, or there is no such step, layer, head or sequence.

    >>> walk = kv.stepper(run, uncached=uncached, step=2, layer=1)
    >>> walk.head, walk.cached
    (0, True)
    """
    check_recording("run", run)
    if uncached is None:
        if beside:
            raise ValueError("beside=True: expected a second recording, stepper(run, uncached)")
        runs = {run[-1].cached: run}
    else:
        check_recording("uncached", uncached)
        check_pair(run, uncached)
        runs = {True: run, False: uncached}
    heads = {
        kept: weights.shape[1]
        for kept, weights in sorted(run[0].attention.items())
        if all(kept in each[0].attention for each in runs.values())
    }
    if not heads:
        raise ValueError("expected recordings that kept attention for at least one layer in common")
    step = check_step(step, len(run))
    layer = next(iter(heads)) if layer is None else check_layer(layer, heads)
    head = check_head(head, layer, heads)
    return Stepper(
        runs,
        heads,
        step=step,
        layer=layer,
        head=head,
        cached=True in runs,
        sequence=check_sequence(sequence, run[0].token_ids.shape[0]),
        beside=beside,
    )


def check_recording(name: str, run) -> None:
    """Raise TypeError or ValueError for what a stepper can't show."""
    if not isinstance(run, Run):
        raise TypeError(
            f"{name}: expected a recording, such as `with kv.record(model) as run:` makes, "
            f"but got {type(run).__name__}"
        )
    if not len(run):
        raise ValueError(f"{name}: this recording has no steps; run a loop inside `with kv.record`")
    if not all(step.kept.get("attention") for step in run):
        raise ValueError(
            f"{name}: attention was not kept in this recording; record it with keep=('attention',)"
        )


def check_pair(run: Run, uncached: Run) -> None:
    """Raise ValueError unless both show the same prompt, one with and one without a cache."""
    if len(run) != len(uncached):
        raise ValueError(
            f"expected two recordings of the same length: run has {len(run)} steps, "
            f"uncached has {len(uncached)}"
        )
    prompts = [each[0].token_ids.tolist() for each in (run, uncached)]
    if prompts[0] != prompts[1]:
        raise ValueError("expected two recordings of the same prompt, but the prompts differ")
    if uncached[-1].held_before:
        raise ValueError(
            f"uncached: expected a recording without a cache, but its last step read "
            f"{uncached[-1].held_before} keys from one. The order is stepper(run, uncached)."
        )


def check_step(step, n_steps: int) -> int:
    return _check_among("step", step, "this recording has steps", range(n_steps))


def check_layer(layer, heads: dict[int, int]) -> int:
    return _check_among("layer", layer, "attention was kept for layers", list(heads))


def check_head(head, layer: int, heads: dict[int, int]) -> int:
    return _check_among("head", head, f"layer {layer} has heads", range(heads[layer]))


def check_sequence(sequence, batch_size: int) -> int:
    return _check_among("sequence", sequence, "this recording has sequences", range(batch_size))


def check_switch(cached: bool, runs: dict[bool, Run]) -> None:
    if cached not in runs:
        kind = "with" if True in runs else "without"
        raise ValueError(f"cached={cached}: this stepper's recording is {kind} a cache")


def _check_among(name: str, value, has: str, numbers: Sequence[int]) -> int:
    value = check_whole(name, value)
    if value in numbers:
        return value
    first, last = numbers[0], numbers[-1]
    known = ", ".join(map(str, numbers))
    if len(numbers) == last - first + 1:
        known = f"{first} to {last}" if last > first else f"{first} only"
    raise ValueError(f"{name} {value}: {has} {known}")
