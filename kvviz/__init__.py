"""Learn the KV cache from your own runs: record a loop, draw it, count it, check it.

The examples in docstrings start from `import torch, kvviz as kv`; `model`, a small random decoder;
`ids`, a prompt of six tokens; two recordings of five steps, `run` with a cache and `uncached`; and
`served`, a recording of an engine that serves two prompts, `ids` and one that begins with it.

Importing this package loads neither torch nor transformers: each name is loaded on first use. If
torch isn't loaded yet, its threads are told to sleep while they wait: see `kvviz.threads`.
"""

from importlib import import_module
from importlib.metadata import PackageNotFoundError, version

from kvviz.threads import let_waiting_threads_sleep

let_waiting_threads_sleep()

try:
    __version__ = version("kvviz")
except PackageNotFoundError:  # read from a folder that was never installed
    __version__ = "0+unknown"

_HOME = {
    "load_model": "models",
    "load_config": "models",
    "ModelUnavailable": "models",
    "load_text": "texts",
    "check_setup": "setup_check",
    "record": "recording.recorder",
    "record_serving": "recording.serving",
    "Run": "recording.run",
    "Step": "recording.step",
    "Square": "recording.square",
    "ServingRun": "recording.serving_run",
    "ServingStep": "recording.serving_step",
    "ServingRequest": "recording.serving_step",
    "check": "checking.loop",
    "check_cache": "checking.cache",
    "logit_gap": "checking.cache",
    "Verdict": "checking.verdict",
    "Forge": "forge",
    "KVCache": "forge",
    "KVEntry": "forge",
    "causal_mask": "forge",
    "PagePool": "page_pool",
    "PagedKVCache": "paged",
    "Picture": "drawing.picture",
    "draw_step": "drawing.figures",
    "draw_side_by_side": "drawing.figures",
    "draw_filmstrip": "drawing.figures",
    "draw_heads": "drawing.figures",
    "draw_overlay": "drawing.overlay",
    "draw_curves": "drawing.curves",
    "draw_bars": "drawing.charts",
    "draw_grid": "drawing.grid",
    "draw_heatmap": "drawing.heatmap",
    "draw_flow": "drawing.flow",
    "draw_rotation": "drawing.rotation",
    "draw_numbers": "drawing.numbers",
    "draw_column": "drawing.stack",
    "draw_memory": "drawing.memory",
    "draw_roofline": "drawing.roofline",
    "draw_pages": "drawing.pages",
    "draw_schedule": "drawing.schedule",
    "draw_pass": "drawing.one_pass",
    "draw_waste": "drawing.waste",
    "stepper": "widgets.stepper",
    "memory_panel": "widgets.memory_panel",
    "animate": "widgets.animation",
    "export_page": "widgets.site",
}
_MODULES = ("count", "crop_faults", "exercises", "faults", "paged_faults", "timing")

__all__ = [*_HOME, *_MODULES]


def __getattr__(name):
    if name not in __all__:
        raise AttributeError(f"kvviz has no {name!r}; it has {', '.join(sorted(__all__))}")
    try:
        module = import_module(f"{__name__}.{_HOME.get(name, name)}")
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"kvviz needs {missing.name}, which isn't installed here. To fix it, run `make lab`, "
            "or: pip install -c constraints.txt -e .",
            name=missing.name,
        ) from missing
    value = getattr(module, name) if name in _HOME else module
    globals()[name] = value
    return value


def __dir__():
    return sorted({*globals(), *__all__})
