"""Learn the KV cache from your own runs: record a loop, draw it, count it, check it.

Importing this package loads neither torch nor transformers: each name is fetched on first use.
"""

from importlib import import_module

_HOME = {
    "load_model": "models",
    "load_config": "models",
    "ModelUnavailable": "models",
    "record": "recording.recorder",
    "machine": "setup_check",
    "check": "checking.loop",
    "check_cache": "checking.cache",
    "gap": "checking.cache",
    "Verdict": "checking.verdict",
    "Forge": "forge",
    "KVCache": "forge",
    "KVEntry": "forge",
    "causal_mask": "forge",
    "Run": "recording.run",
    "Step": "recording.step",
    "Square": "recording.step",
    "Picture": "drawing.picture",
    "draw_step": "drawing.picture",
    "stepper": "widgets.stepper",
    "Stepper": "widgets.stepper",
    "filmstrip": "drawing.picture",
    "side_by_side": "drawing.picture",
    "plot": "drawing.picture",
    "bars": "drawing.picture",
    "draw_column": "drawing.stack",
    "draw_memory": "drawing.memory",
    "draw_roofline": "drawing.memory",
    "draw_heads": "drawing.figures",
    "overlay": "drawing.figures",
    "weigh": "widgets.memory_panel",
    "Panel": "widgets.memory_panel",
    "animate": "widgets.animation",
    "Animation": "widgets.animation",
}
_ROOMS = {
    "count": "count",
    "draw": "drawing.square",
    "exercises": "exercises",
    "faults": "faults",
    "site": "widgets.site",
    "style": "drawing.style",
    "timing": "timing",
}

__all__ = [*_HOME, *_ROOMS]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"kvviz has no {name!r}; it has {', '.join(sorted(__all__))}")
    try:
        room = import_module(f"{__name__}.{(_HOME | _ROOMS)[name]}")
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"kvviz needs {missing.name}, which is not installed here. To mend it, run `make lab`, "
            "or: pip install -c constraints.txt -e .",
            name=missing.name,
        ) from missing
    value = getattr(room, name) if name in _HOME else room
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
