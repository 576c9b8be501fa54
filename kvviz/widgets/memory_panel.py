"""`memory_panel`: the cache beside the weights, as you change tokens, batch and precision."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import traitlets

from kvviz import count
from kvviz.arguments import check_number, check_whole, describe
from kvviz.drawing import charts, picture
from kvviz.widgets import placed
from kvviz.words import pluralize

PRECISIONS = {"float32": 4, "bfloat16": 2, "8 bits": 1, "4 bits": 0.5}  # bytes per number
MOST_TOKENS, MOST_CONVERSATIONS = 10_000_000, 100_000


class _Weights(NamedTuple):
    """Bytes of a model's weights, and how each is stored; "" if that isn't known."""

    bytes: float
    precision: str


def _weigh(model, weights) -> Callable[[str], _Weights | None]:
    """What the weights take beside a cache of a given precision, or None."""
    if weights is not None:
        return lambda precision: _Weights(weights, "")
    if not hasattr(model, "parameters"):
        return lambda precision: None
    n_weights = sum(weight.numel() for weight in model.parameters())

    def weigh(precision: str) -> _Weights:
        stored = precision if PRECISIONS[precision] >= 2 else "bfloat16"
        return _Weights(n_weights * PRECISIONS[stored], stored)

    return weigh


class MemoryPanel(placed.Placed):
    """What `memory_panel` returns.

    Set `tokens`, `batch_size` and `precision`; read `bytes`, `sentence` and `picture`.
    """

    _esm = placed.read_module("panel.js")
    _css = placed.HERE / "panel.css"
    tokens = traitlets.Int(min=0, max=MOST_TOKENS).tag(sync=True)
    batch_size = traitlets.Int(min=1, max=MOST_CONVERSATIONS).tag(sync=True)
    precision = traitlets.Enum(list(PRECISIONS)).tag(sync=True)
    _picture = traitlets.Unicode().tag(sync=True)
    _about = traitlets.Dict().tag(sync=True)

    def __init__(self, config, weigh, *, tokens, batch_size, precision):
        self._config, self._weigh = config, weigh
        limits = {"tokens": (0, MOST_TOKENS), "batch_size": (1, MOST_CONVERSATIONS)}
        about = {"limits": limits, "precisions": list(PRECISIONS)}
        super().__init__(tokens=tokens, batch_size=batch_size, precision=precision, _about=about)
        self.observe(self._refresh, ["tokens", "batch_size", "precision"])
        self._refresh()

    @property
    def bytes(self) -> float:
        """Bytes of the cache: `batch_size` conversations of `tokens` tokens each."""
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
        of = f"{many} of {pluralize(self.tokens, 'token')} in {self.precision}"
        sentence = f"{of}: the cache holds {count.in_units(self.bytes)}"
        if (weights := self._weights) is None:
            return sentence
        kept = "" if weights.precision in ("", self.precision) else f" in {weights.precision}"
        return f"{sentence}, {self._share} the weights' {count.in_units(weights.bytes)}{kept}"

    @property
    def _weights(self) -> _Weights | None:
        """The weights beside a cache of this precision."""
        return self._weigh(self.precision)

    @property
    def _share(self) -> str:
        times = self.bytes / self._weights.bytes
        digits = 4 if 0.99 < times < 1.01 else 3
        return f"{times:.3g} times" if times >= 2 else f"{100 * times:.{digits}g}% of"

    def _draw(self) -> picture.Picture:
        """The cache as a bar, with the weights as a line across it."""
        title, levels, highlight = f"The cache: {count.in_units(self.bytes)}", {}, []
        if weights := self._weights:
            title += f", {self._share} the weights"
            name = f"weights in {weights.precision}" if weights.precision else "weights"
            levels = {name: weights.bytes / 2**20}
            highlight = ["cache"] if self.bytes > weights.bytes else []
        return charts.draw_bars(
            {"cache": self.bytes / 2**20},
            title=title,
            xlabel="MiB held",
            sentence=self.sentence,
            levels=levels,
            highlight=highlight,
        )

    def _refresh(self, _=None) -> None:
        self.picture = self._draw()
        self._picture = self.picture.html

    def __repr__(self) -> str:
        return self.sentence

    def _repr_mimebundle_(self, **kwargs):
        still, metadata = self.picture._repr_mimebundle_()
        live, _ = super()._repr_mimebundle_(**kwargs)
        return {**still, **live, "text/plain": self.sentence}, metadata


def memory_panel(
    model, *, weights=None, tokens=1000, batch_size=1, precision="float32"
) -> MemoryPanel:
    """A panel that compares a cache with the weights as you change tokens, batch and precision.

    Args:
        model: a model, or only its config.
        weights: bytes of the weights. By default the model's, stored as the cache is, or in
            bfloat16 beside a cache of fewer bits. A config has no weights.
        tokens: tokens in each conversation.
        batch_size: how many conversations there are at the same time.
        precision: how the cache stores a number: "float32", "bfloat16", "8 bits" or "4 bits".

    Raises:
        TypeError: `model` is neither a model nor a config.
        ValueError: the config is unsupported, `weights` isn't a positive number, or there is no
            such number of tokens, batch size or precision.

    >>> kv.memory_panel(model, tokens=100, batch_size=2).sentence.partition(",")[0]
    '2 conversations of 100 tokens in float32: the cache holds 206 KiB'
    """
    config = getattr(model, "config", model)
    count.layers(config)  # which refuses what it can't count
    if weights is not None:
        weights = check_number("weights", weights, above=0)
    if not isinstance(precision, str) or precision not in PRECISIONS:
        known = ", ".join(map(repr, PRECISIONS))
        raise ValueError(f"precision: expected one of {known}, but got {describe(precision)}")
    return MemoryPanel(
        config,
        _weigh(model, weights),
        tokens=check_whole("tokens", tokens, least=0, most=MOST_TOKENS),
        batch_size=check_whole("batch_size", batch_size, least=1, most=MOST_CONVERSATIONS),
        precision=precision,
    )
