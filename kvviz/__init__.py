"""Learn the KV cache from your own runs: record a loop, draw it, count it, check it.

Importing this package loads neither torch nor transformers: each name is fetched on first use.
"""

from importlib import import_module

_HOME = {
    "load_model": "models",
    "ModelUnavailable": "models",
    "record": "record",
    "check": "check",
    "Verdict": "verdict",
    "Run": "run",
    "Step": "step",
    "Square": "step",
    "Picture": "picture",
    "draw_step": "picture",
    "filmstrip": "picture",
    "side_by_side": "picture",
    "plot": "picture",
    "bars": "picture",
}
_ROOMS = ("count", "draw", "exercises", "style", "timing")

__all__ = [*_HOME, *_ROOMS]


def __getattr__(name):
    if name in _HOME:
        value = getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    elif name in _ROOMS:
        value = import_module(f"{__name__}.{name}")
    else:
        raise AttributeError(f"kvviz has no {name!r}; it has {', '.join(sorted(__all__))}")
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
