"""A stepper through a serving engine's run: its pages, its schedule and the square of each pass."""

from __future__ import annotations

from pathlib import Path

import traitlets

from kvviz.arguments import describe
from kvviz.drawing.pass_facts import read_pass
from kvviz.drawing.requests import check_serving
from kvviz.widgets import page
from kvviz.widgets import stepper_checks as checks
from kvviz.widgets.framed import Framed
from kvviz.widgets.serving_frames import VIEWS, ServingFrames


class ServingStepper(Framed):
    """What `stepper` returns for a run of a serving engine: set its traits, read its `sentence`."""

    step = traitlets.Int().tag(sync=True)
    view = traitlets.Enum(list(VIEWS), "pages").tag(sync=True)
    _about = traitlets.Dict().tag(sync=True)
    heads: dict[int, int] = {}  # there's no menu of heads

    def __init__(self, serving, *, step: int, view: str, layer: int | None, head: int):
        self.serving = serving
        self._frames = ServingFrames(serving, layer, head)
        width, height = map(max, zip(*self._frames.rooms.values(), strict=True))
        about = {
            "steps": len(serving),
            "heads": [],
            "overview": [],
            "switch": False,
            "views": list(VIEWS.items()),
            "width": width,
            "height": height,
            "longest": self._frames.longest,
        }
        super().__init__(step=step, view=view, _about=about)
        self.on_msg(self._send_answer)

    @property
    def sentence(self) -> str:
        """What the frame shows, in words."""
        return self._frames.sentence(self.view, self.step)

    @property
    def frame(self) -> bytes:
        """The picture as PNG bytes; all frames of a view have one size."""
        return self._frames.frame(self.view, self.step)[0]

    @property
    def title(self) -> str:
        """What a page that holds only this stepper is called."""
        return "A serving engine, step by step"

    @traitlets.validate("step")
    def _validate(self, proposal):
        try:
            return checks.check_step(proposal.value, len(self.serving))
        except ValueError as error:
            raise traitlets.TraitError(str(error)) from None

    def _send_answer(self, _, request, buffers):
        if answer := self.answer(request):
            self.send(*answer)

    def answer(self, request: dict) -> tuple[dict, list[bytes]] | None:
        """The message and the picture that answer {"frame": [view, step]}.

        If a frame can't be drawn, the answer is the error, which the widget shows.
        """
        frame = request.get("frame")
        if frame is None:
            return None
        view, step = frame
        try:
            png, sentence = self._frames.frame(view, step)
            size = self._frames.rooms[view]
            return {**request, "sentence": sentence, "cells": [], "size": size}, [png]
        except Exception as error:
            message = f"step {step} could not be drawn: {type(error).__name__}: {error}"
            return {**request, "error": message}, []

    def save(self, path) -> Path:
        """Write this stepper as one web page that needs no kernel and no network.

        Raises:
            TypeError: `path` isn't a file's name.
            ValueError: the name doesn't end in .html.
            OSError: the file can't be written; an older file of that name is left as it was.
        """
        return page.save(self, path)

    def _draw_still(self):
        return self._frames.picture(self.view, self.step)


def is_serving(run) -> bool:
    """Whether this is a recording of a serving engine, even one without steps."""
    try:
        check_serving(run)
    except TypeError:
        return False
    return bool(len(run)) or hasattr(run, "engines")


def make_stepper(serving, *, step, view, layer, head) -> ServingStepper:
    """A stepper through a run of a serving engine; `stepper` lists the errors."""
    if not len(serving):
        raise ValueError("this recording has no steps; start an engine inside `with`")
    if not isinstance(view, str) or view not in VIEWS:
        known = ", ".join(map(repr, VIEWS))
        raise ValueError(f"view: expected one of {known}, but got {describe(view)}")
    step = checks.check_step(step, len(serving))
    read_pass(serving, step, layer, 0 if head is None else head)  # which knows layers and heads
    head = 0 if head is None else head
    return ServingStepper(serving, step=step, view=view, layer=layer, head=head)
