"""What every stepper is: a widget that shows frames, and a still picture where no widget runs."""

from __future__ import annotations

from kvviz.widgets import page, placed


class Framed(placed.Placed):
    """A widget with `_frames`, the `sentence` of the one shown, and a picture to stand for it."""

    _esm = placed.read_module("pointing.js", "heads.js", "stepper.js")
    _css = placed.HERE / "stepper.css"

    def _draw_still(self):
        """The picture for a place where no widget runs."""
        raise NotImplementedError

    def close(self):
        """Forget the frames and disconnect from the browser."""
        self._frames.clear()
        super().close()

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, **kwargs):
        live, metadata = super()._repr_mimebundle_(**kwargs)
        try:
            still, of_still = self._draw_still()._repr_mimebundle_()
        except Exception as error:  # the widget still shows the steps that can be drawn
            return {**live, "text/plain": f"{type(error).__name__}: {error}"}, metadata
        still["text/html"] += page.RUN_IT
        return {**still, **live, "text/plain": self.sentence}, {**of_still, **metadata}
