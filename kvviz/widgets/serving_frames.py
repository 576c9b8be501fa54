"""The frames of a serving engine's stepper: pages, schedule and square, each view of one size."""

from __future__ import annotations

from collections import OrderedDict

import numpy as np

from kvviz.drawing import (
    one_pass,
    pages,
    pages_facts,
    pass_facts,
    schedule,
    schedule_facts,
    schedule_words,
    style,
)
from kvviz.drawing.picture import Picture

VIEWS = {"pages": "Pages", "schedule": "Schedule", "pass": "Whole pass"}
KEPT = 24  # frames remembered


class ServingFrames:
    """The frames of a run, by (view, step), and the sentence of each.

    A view's frames have the size of the largest, so nothing jumps from step to step.
    """

    def __init__(self, serving, layer: int | None, head: int):
        self.serving, self.layer, self.head = serving, layer, head
        self._kept: OrderedDict[tuple, tuple[bytes, str]] = OrderedDict()
        self._schedule = schedule_facts.read_schedule(serving)
        steps = range(len(serving))
        with style.scope():
            self.rooms = {
                "pages": self._find_room(pages, self._memory, steps),
                "pass": self._find_room(one_pass, self._pass, steps),
                "schedule": (0, 0),
            }
        first = self.picture("schedule", 0)
        self.rooms["schedule"] = first.width, first.height
        self.longest = max((self.sentence(view, k) for view in VIEWS for k in steps), key=len)

    @staticmethod
    def _find_room(painter, read, steps) -> tuple[int, int]:
        """Width and height of the largest picture, in pixels; both even."""
        sizes = [painter.measure(*read(step)) for step in steps]
        return tuple((2 * np.ceil(np.max(sizes, axis=0) / 2)).astype(int).tolist())

    def _memory(self, step: int):
        memory = pages_facts.read_memory(self.serving, step)
        return memory, pages_facts.write_title(memory)

    def _pass(self, step: int):
        one = pass_facts.read_pass(self.serving, step, self.layer, self.head)
        return one, pass_facts.write_title(one)

    def sentence(self, view: str, step: int) -> str:
        """What a frame shows, in words."""
        if view == "pages":
            return pages_facts.describe_memory(self._memory(step)[0])
        if view == "pass":
            return pass_facts.describe_pass(self._pass(step)[0])
        whole = schedule_words.describe_schedule(self._schedule, "step")
        return f"{schedule_words.describe_step(self._schedule, step)}. All steps: {whole}"

    def picture(self, view: str, step: int) -> Picture:
        """A frame with its sentence."""
        with style.scope():
            if view == "pages":
                figure = pages.make_figure(*self._memory(step), self.rooms[view])
            elif view == "pass":
                figure = one_pass.make_figure(*self._pass(step), self.rooms[view])
            else:
                title = f"Step {step}: who is fed, and who waits"
                figure = schedule.make_figure(self._schedule, title, "step", step)
        return Picture(figure, self.sentence(view, step))

    def frame(self, view: str, step: int) -> tuple[bytes, str]:
        """A frame's PNG and its sentence; the last few are kept."""
        key = view, step
        if key not in self._kept:
            picture = self.picture(*key)
            self._kept[key] = picture.png(), picture.sentence
        self._kept.move_to_end(key)
        while len(self._kept) > KEPT:
            self._kept.popitem(last=False)
        return self._kept[key]

    def clear(self) -> None:
        """Forget the frames that were kept."""
        self._kept.clear()
