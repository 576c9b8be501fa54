"""Learn the KV cache from your own runs: record a loop, draw it, count it, check it.

Importing this package loads neither torch nor transformers: each name is fetched on first use.
"""

from importlib import import_module

_HOME = {
    "load_model": "models",
    "load_config": "models",
    "ModelUnavailable": "models",
    "record": "recording",
    "machine": "readiness",
    "check": "checking",
    "check_cache": "trial",
    "gap": "trial",
    "Verdict": "verdict",
    "Forge": "forge",
    "KVCache": "forge",
    "KVEntry": "forge",
    "causal_mask": "forge",
    "Run": "run",
    "Step": "step",
    "Square": "step",
    "Picture": "picture",
    "draw_step": "picture",
    "stepper": "widget",
    "Stepper": "widget",
    "filmstrip": "picture",
    "side_by_side": "picture",
    "plot": "picture",
    "bars": "picture",
    "draw_column": "column",
    "draw_memory": "costs",
    "draw_roofline": "costs",
    "draw_heads": "views",
    "overlay": "views",
    "weigh": "panel",
    "Panel": "panel",
    "animate": "animation",
    "Animation": "animation",
}
_ROOMS = ("count", "draw", "exercises", "faults", "site", "style", "timing")

__all__ = [*_HOME, *_ROOMS]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"kvviz has no {name!r}; it has {', '.join(sorted(__all__))}")
    try:
        room = import_module(f"{__name__}.{_HOME.get(name, name)}")
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
