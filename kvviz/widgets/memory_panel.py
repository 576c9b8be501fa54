"""`memory_panel`: the cache beside the weights, for as many tokens, conversations and bits as you ask."""

from __future__ import annotations

from math import inf
from numbers import Real

import ipywidgets as widgets
import traitlets

from kvviz import count
from kvviz.drawing import charts, picture

PRECISIONS = {"float32": 4, "bfloat16": 2, "8 bits": 1, "4 bits": 0.5}  # bytes a number


class MemoryPanel(widgets.VBox):
    """What `memory_panel` returns: set `tokens`, `batch_size`, `precision`; read `bytes` and `sentence`.

    `picture` is what is shown now.
    """

    tokens = traitlets.Int(min=0, max=10_000_000)
    batch_size = traitlets.Int(min=1, max=100_000)
    precision = traitlets.Enum(list(PRECISIONS))

    def __init__(self, config, weights: int | None, **state):
        self._config, self._weights = config, weights
        self._shown = widgets.HTML()
        controls = {
            "tokens": widgets.BoundedIntText(description="Tokens", max=10_000_000, step=500),
            "batch_size": widgets.BoundedIntText(description="Batch", min=1, max=100_000),
            "precision": widgets.Dropdown(description="Precision", options=list(PRECISIONS)),
        }
        super().__init__([widgets.HBox(list(controls.values())), self._shown])
        self.add_class("kvviz-panel")
        for name, value in state.items():
            setattr(self, name, value)
            traitlets.link((self, name), (controls[name], "value"))
        self.observe(self._draw, list(state))
        self._draw()

    @property
    def bytes(self) -> float:
        """What the cache holds: `batch_size` conversations of `tokens` each."""
        return count.cache_bytes(
            self._config,
            self.tokens,
            batch_size=self.batch_size,
            bytes_per_number=PRECISIONS[self.precision],
        )

    @property
    def sentence(self) -> str:
        """What the picture shows, in words."""
        many = "1 conversation" if self.batch_size == 1 else f"{self.batch_size:,} conversations"
        of = f"{many} of {self.tokens:,} token{'s' * (self.tokens != 1)} in {self.precision}"
        said = f"{of}: the cache holds {count.in_units(self.bytes)}"
        if not self._weights:
            return said
        return f"{said}, {self._share} the weights' {count.in_units(self._weights)}"

    @property
    def _share(self) -> str:
        times = self.bytes / self._weights
        digits = 4 if 0.99 < times < 1.01 else 3
        return f"{times:.3g} times" if times >= 2 else f"{100 * times:.{digits}g}% of"

    def _drawn(self) -> picture.Picture:
        """The cache as a bar, the weights as a line across."""
        title, levels, over = f"The cache: {count.in_units(self.bytes)}", {}, False
        if self._weights:
            title += f", {self._share} the weights"
            levels, over = {"weights": self._weights / 2**20}, self.bytes > self._weights
        looks = {"xlabel": "MiB held", "sentence": self.sentence, "levels": levels}
        looks["highlight"] = ["cache"] if over else []
        return charts.draw_bars({"cache": self.bytes / 2**20}, title=title, **looks)

    def _draw(self, _=None) -> None:
        self.picture = self._drawn()
        self._shown.value = self.picture._repr_mimebundle_()[0]["text/html"]

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, **kwargs):
        still, looks = self.picture._repr_mimebundle_()
        shown = super()._repr_mimebundle_(**kwargs)
        return {**still, **shown, "text/plain": self.sentence}, looks


def memory_panel(
    model, *, weights=None, tokens=1000, batch_size=1, precision="float32"
) -> MemoryPanel:
    """A panel that weighs a cache: tokens, batch and precision, with the weights as a line across.

    Args:
        model: a model, or its config alone.
        weights: bytes of the weights; those of the model unless given, none for a config.
        tokens: how many each conversation holds.
        batch_size: conversations at once.
        precision: of the cache: "float32", "bfloat16", "8 bits" or "4 bits".

    Raises:
        ValueError: a config that cannot be priced, weights that weigh nothing, or no such number
            of tokens, batch or precision.
    """
    config = getattr(model, "config", model)
    if weights is None and hasattr(model, "parameters"):
        weights = sum(weight.nbytes for weight in model.parameters())
    if weights is not None and not (isinstance(weights, Real) and 0 < weights < inf):
        raise ValueError(f"weights: expected bytes, more than none, and got {weights!r}")
    state = {"tokens": tokens, "batch_size": batch_size, "precision": precision}
    try:
        return MemoryPanel(config, weights, **state)
    except traitlets.TraitError as error:
        raise ValueError(str(error)) from None
