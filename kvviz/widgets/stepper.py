"""`stepper`: a recording walked step by step, with buttons, slider, menus and keyboard.

State first: `step`, `layer`, `head` and `cached` are traits; the browser only shows them. It asks
for one frame at a time, the newest it wants, and keeps what it got.
"""

from collections.abc import Sequence
from pathlib import Path

import anywidget
import numpy as np
import traitlets

from kvviz.drawing import figures, picture
from kvviz.recording.run import Run
from kvviz.widgets import page
from kvviz.widgets.frames import Frames

STRIP = (6, 5, 4, 3)  # steps in the picture that stands where no widget runs: as many as fit
ROOM = 70  # columns across it


class Stepper(anywidget.AnyWidget):
    """What `stepper` returns: set its traits, read its `sentence` and `frame`."""

    _esm = Path(__file__).with_name("stepper.js")
    _css = Path(__file__).with_name("stepper.css")
    step = traitlets.Int().tag(sync=True)
    layer = traitlets.Int().tag(sync=True)
    head = traitlets.Int().tag(sync=True)
    cached = traitlets.Bool().tag(sync=True)
    _about = traitlets.Dict().tag(sync=True)

    def __init__(self, runs: dict[bool, Run], heads: dict[int, int], *, sequence, beside, **state):
        self.runs, self.heads, self._beside = runs, heads, beside
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
            "overview": max(heads.values()) > 1,  # all heads of a layer can be asked for
        }
        super().__init__(**state, _about=about)
        self.on_msg(self._answer)

    # -- state -------------------------------------------------------------------------------

    @property
    def sentence(self) -> str:
        """What the frame shows, in words."""
        return self._frames.sentence(*self._key)

    @property
    def frame(self) -> bytes:
        """The picture as PNG bytes; all frames of a stepper are one size."""
        return self._frames.frame(*self._key)[0]

    @property
    def size(self) -> tuple[int, int]:
        """Width and height of every frame as shown, in pixels."""
        return self._frames.size

    @property
    def _key(self) -> tuple[bool, int, int, int]:
        return self.cached, self.layer, self.head, self.step

    @traitlets.validate("step", "layer", "head", "cached")
    def _check(self, proposal):
        name, value = proposal.trait.name, proposal.value
        wrong = {
            "step": lambda: _no_step(value, self._steps),
            "layer": lambda: _no_layer(value, self.heads),
            "head": lambda: _no_head(value, self.layer, self.heads),
            "cached": lambda: _no_run(value, self.runs),
        }[name]()
        if wrong:
            raise traitlets.TraitError(wrong)
        return value

    @traitlets.observe("layer")
    def _keep_head(self, change):
        self.head = min(self.head, self.heads[self.layer] - 1)

    # -- the browser -------------------------------------------------------------------------

    def _answer(self, _, asked, buffers):
        """Send what was asked for. What went wrong is shown too."""
        if reply := self._reply(asked):
            self.send(*reply)

    def _reply(self, asked: dict) -> tuple[dict, list[bytes]] | None:
        """Message and pictures that answer what was asked, in JupyterLab and in a saved page.

        {"frame": [cached, layer, head, step]} asks for one frame and its cells, {"heads":
        [cached, layer, step]} for all heads of a layer, each with its box in the picture.
        """
        frame, heads = asked.get("frame"), asked.get("heads")
        if frame is None and heads is None:
            return None
        try:
            if frame is not None:
                png, sentence = self._frames.frame(*frame)
                return {**asked, "sentence": sentence, "cells": self._frames.cells(*frame)}, [png]
            png, sentence, boxes = self._frames.heads(*heads)
            return {**asked, "sentence": sentence, "boxes": boxes}, [png]
        except Exception as error:
            step = (frame or heads)[-1]
            fault = f"step {step} could not be drawn: {type(error).__name__}: {error}"
            return {**asked, "error": fault}, []

    def save(self, path) -> Path:
        """Write this stepper as one web page that steps with no kernel and no network.

        It begins where the stepper stands, and holds up to six layers and heads, as many as fit.

        Raises:
            ValueError: a name that does not end in .html.
            OSError: it cannot be written there; what was there stays.
        """
        return page.save(self, path)

    def close(self):
        self._frames.clear()
        super().close()

    # -- where no widget runs ----------------------------------------------------------------

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, **kwargs):
        shown, looks = super()._repr_mimebundle_(**kwargs)
        try:
            strip, of_strip = self._strip()._repr_mimebundle_()
        except Exception as error:  # the widget says which step, and the others can be walked
            return {**shown, "text/plain": f"{type(error).__name__}: {error}"}, looks
        return {**strip, **shown, "text/plain": self.sentence}, {**of_strip, **looks}

    def _strip(self) -> picture.Picture:
        """Steps around this one, of both runs where both are there."""
        for many in STRIP:
            first = max(0, min(self.step - many // 2, self._steps - many))
            steps = range(first, min(first + many, self._steps))
            if many * self.runs[self.cached][steps[-1]].visible <= ROOM:
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
    """Walk a recording step by step: buttons, slider, menus, and the arrow keys, Home and End.

    The result's `step`, `layer`, `head` and `cached` can be read and set; `sentence` and `frame`
    (PNG bytes) follow. Where no widget runs, its cell shows some of the steps as a picture.

    Args:
        run: a recording that kept attention.
        uncached: a recording of the same prompt, as many steps, without a cache; a switch goes
            from one to the other.
        step, layer, head: where to begin, from 0; the first step, the first layer that was kept
            and head 0 unless given.
        sequence: which sequence of the batch.
        beside: both recordings beside each other instead of a switch.

    Raises:
        TypeError: not a recording.
        ValueError: a recording without steps or attention, two that do not belong together, or no
            such step, layer, head or sequence.
    """
    runs = {True: _walkable(run, "run"), False: _walkable(uncached, "uncached")}
    if uncached is None:
        runs = {run[-1].cached: run}
        if beside:
            raise ValueError("beside=True: expected a second recording, stepper(run, uncached)")
    else:
        _check_pair(run, uncached)
    heads = {
        layer: weights.shape[1]
        for layer, weights in sorted(run[0].attention.items())
        if all(layer in each[0].attention for each in runs.values())
    }
    if not heads:
        raise ValueError("uncached: attention was kept of no layer that run kept, too")
    layer = next(iter(heads)) if layer is None else layer
    n_batch = run[0].token_ids.shape[0]
    wrong = (
        _not_whole({"step": step, "layer": layer, "head": head, "sequence": sequence})
        or _no_step(step, len(run))
        or _no_layer(layer, heads)
        or _no_head(head, layer, heads)
        or _out_of("sequence", sequence, "this recording has rows", range(n_batch))
    )
    if wrong:
        raise ValueError(wrong)
    state = {"step": int(step), "layer": int(layer), "head": int(head), "cached": True in runs}
    return Stepper(runs, heads, sequence=int(sequence), beside=beside, **state)


def _walkable(run, name: str):
    if run is None and name == "uncached":
        return None
    if not isinstance(run, Run):
        raise TypeError(
            f"{name}: expected a recording, as `with kv.record(model) as run:` makes one, "
            f"and got {type(run).__name__}"
        )
    if not len(run):
        raise ValueError(f"{name}: this recording has no steps; run a loop inside `with kv.record`")
    if not all(step.kept.get("attention") for step in run):
        raise ValueError(
            f"{name}: attention was not kept in this recording: record(..., keep=('attention',))"
        )
    return run


def _check_pair(run: Run, uncached: Run) -> None:
    if len(run) != len(uncached):
        raise ValueError(
            f"expected two recordings of one length: run has {len(run)} steps, "
            f"uncached has {len(uncached)}"
        )
    prompts = [each[0].token_ids.tolist() for each in (run, uncached)]
    if prompts[0] != prompts[1]:
        raise ValueError("expected two recordings of one prompt, and step 0 was fed other tokens")
    if uncached[-1].held_before:
        raise ValueError(
            f"uncached: expected a recording without a cache, and its last step read "
            f"{uncached[-1].held_before} keys from one; stepper(cached, uncached)"
        )


def _out_of(name: str, value: int, has: str, there: Sequence[int]) -> str:
    return "" if value in there else f"{name} {value}: {has} {_listed(there)}"


def _listed(numbers: Sequence[int]) -> str:
    first, last = numbers[0], numbers[-1]
    if len(numbers) == last - first + 1:
        return f"{first} to {last}" if last > first else f"{first} only"
    return ", ".join(map(str, numbers))


def _no_step(step: int, n: int) -> str:
    return _out_of("step", step, "this recording has steps", range(n))


def _no_layer(layer: int, heads: dict[int, int]) -> str:
    return _out_of("layer", layer, "attention was kept of layers", list(heads))


def _no_head(head: int, layer: int, heads: dict[int, int]) -> str:
    return _out_of("head", head, f"layer {layer} has heads", range(heads[layer]))


def _no_run(cached: bool, runs: dict) -> str:
    there = "with" if True in runs else "without"
    return "" if cached in runs else f"cached={cached}: this stepper's recording is {there} a cache"


def _not_whole(given: dict) -> str:
    for name, value in given.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer):
            return f"{name}: expected a whole number, and got {value!r}"
    return ""
