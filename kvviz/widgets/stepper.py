"""`stepper`: move through a recording step by step, with buttons, slider, menus and keyboard.

The state is in Python: `step`, `layer`, `head` and `cached` are traits, and the browser only shows
them. It requests one frame at a time, the one it needs now, and keeps the frames it was sent.
"""

from pathlib import Path

import traitlets

from kvviz.arguments import check_flag, describe
from kvviz.recording.run import Run
from kvviz.widgets import page, pointing
from kvviz.widgets import stepper_checks as checks
from kvviz.widgets.framed import Framed
from kvviz.widgets.frames import Frames
from kvviz.widgets.serving_stepper import ServingStepper, is_serving, make_stepper


class Stepper(Framed):
    """What `stepper` returns: set its traits, read its `sentence` and its `frame`."""

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
            "overview": [layer for layer, n in heads.items() if n > 1],  # views of all heads
            "states": pointing.WORDS,
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
    def title(self) -> str:
        """The prompt's text, or its beginning: what a page that holds only this is called."""
        first, layer = next(iter(self.runs.values()))[0], next(iter(self.heads))
        words = "".join(first.square(layer, 0, self._frames.sequence).tokens)
        words = " ".join(words.split())
        return f"{words[:57]}..." if len(words) > 60 else words or "A run, step by step"

    @property
    def zooms(self) -> bool:
        """Whether early steps are drawn larger; all frames still have one size."""
        return self._frames.zooms

    @zooms.setter
    def zooms(self, zooms: bool):
        self._frames.zooms = zooms
        self._frames.clear()

    @property
    def _key(self) -> tuple[bool, int, int, int]:
        return self.cached, self.layer, self.head, self.step

    @traitlets.validate("step", "layer", "head", "cached")
    def _validate(self, proposal):
        name, value = proposal.trait.name, proposal.value
        try:
            if name == "step":
                checks.check_step(value, self._steps)
            elif name == "layer":
                checks.check_layer(value, self.heads)
            elif name == "head":
                checks.check_head(value, self.layer, self.heads)
            else:
                checks.check_switch(value, self.runs)
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
        [cached, layer, step]} a picture and a sentence for each head of a layer. If a frame can't
        be drawn, the answer is the error, which the widget shows.
        """
        frame, heads = request.get("frame"), request.get("heads")
        if frame is None and heads is None:
            return None
        try:
            if frame is not None:
                png, sentence = self._frames.frame(*frame)
                cells = self._frames.cells(*frame)
                return {**request, "sentence": sentence, "cells": cells}, [png]
            pictures, sentences, n_rows = self._frames.heads(*heads)
            return {**request, "sentences": sentences, "rows": n_rows}, pictures
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
            TypeError: `path` isn't a file's name.
            ValueError: the name doesn't end in .html, or there is no such layer or head.
            OSError: the file can't be written; an older file of that name is left as it was.

        >>> kv.stepper(run, step=1).save("mine.html").name
        'mine.html'
        """
        return page.save(self, path, heads)

    def _draw_still(self):
        return self._frames.draw_strip(*self._key)


def stepper(
    run, uncached=None, *, step=0, layer=None, head=None, sequence=0, beside=False, view=None
) -> Stepper | ServingStepper:
    """Move through a recording step by step: buttons, slider, menus, arrow keys, Home and End.

    You can read and set `step`, `layer`, `head` and `cached` of the result; its `sentence` and
    `frame` (PNG bytes) follow. Where no widget runs, the cell shows some of the steps as a picture.

    Args:
        run: a recording that kept attention, or a serving engine's; that one's result has `view`
            and `step` to set.
        uncached: a recording of the same prompt and the same number of steps without a cache; a
            switch changes from one to the other.
        step, layer, head: where to start, counted from 0. By default step 0, and the layer and
            head that attend most to a single token further back; see `Run.choose_head`. If you give
            only one of layer and head, the other is the first layer kept, or head 0.
        sequence: which sequence of the batch, counted from 0.
        beside: show both recordings beside each other instead of a switch.
        view: of a serving engine, "pages" (by default), "schedule" or "pass".

    Raises:
        TypeError: `run` or `uncached` isn't a recording.
        ValueError: a recording has no steps or no attention, the two recordings don't belong
            together, or there is no such step, layer, head, sequence or view.

    >>> walk = kv.stepper(run, uncached=uncached, step=2, layer=1)
    >>> walk.head, walk.cached
    (0, True)
    >>> kv.stepper(served, view="schedule", step=1)
    step 1: req_0 is fed 5 rows, first token out; req_1 is fed 1 row, token out. All steps: ...
    """
    beside = check_flag("beside", beside)
    if is_serving(run) and uncached is None:
        view = "pages" if view is None else view
        return make_stepper(run, step=step, view=view, layer=layer, head=head)
    if view is not None:
        expected = "expected only with a recording made by kv.record_serving"
        raise ValueError(f"view: {expected}, but got {describe(view)}")
    checks.check_recording("run", run)
    if uncached is None:
        if beside:
            raise ValueError("beside=True: expected a second recording, stepper(run, uncached)")
        runs = {run[-1].cached: run}
    else:
        checks.check_recording("uncached", uncached)
        checks.check_pair(run, uncached)
        runs = {True: run, False: uncached}
    heads = checks.list_heads(runs)
    step = checks.check_step(step, len(run))
    sequence = checks.check_sequence(sequence, run[0].token_ids.shape[0])
    if layer is None and head is None:
        layer, head = run.choose_head(list(heads), sequence)
    layer = next(iter(heads)) if layer is None else checks.check_layer(layer, heads)
    head = checks.check_head(0 if head is None else head, layer, heads)
    return Stepper(
        runs,
        heads,
        step=step,
        layer=layer,
        head=head,
        cached=True in runs,
        sequence=sequence,
        beside=beside,
    )
