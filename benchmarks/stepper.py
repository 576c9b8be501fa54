"""What a step costs: drawing a new frame in the kernel, and going from click to painted picture."""

import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from statistics import median

import torch

import kvviz as kv

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests"))
import browser  # noqa: E402

PROMPT = "The first law of motion states"
NOTEBOOK = f"""
import sys
import kvviz as kv
sys.path.insert(0, {str(ROOT)!r})
from benchmarks.stepper import record
cached, uncached = record(12, cached=True), record(12, cached=False)
kv.stepper(cached, uncached=uncached, layer=13, head=0)
"""
PAINTED = """([control, image]) => new Promise((done) => {
  const start = performance.now(), watch = new MutationObserver(() => {
    watch.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
  });
  watch.observe(image, { attributes: true, attributeFilter: ["src"] });
  if (control.matches("button")) return control.click();
  control.selectedIndex += 1;
  control.dispatchEvent(new Event("change", { bubbles: true }));
})"""


@torch.no_grad()
def record(n_new: int, *, cached: bool, **options):
    """Record the running example, with the cached loop or the plain one."""
    model, tokenizer = kv.load_model()
    seen = fed = tokenizer(PROMPT, return_tensors="pt").input_ids
    cache = None
    with kv.record(model, tokenizer, **options) as run:
        for _ in range(n_new):
            out = model(fed if cached else seen, cache=cache, use_cache=cached)
            fed, cache = out.logits[:, -1:].argmax(-1), out.cache
            seen = torch.cat([seen, fed], dim=-1)
    return run


def measure_frames(walk, heads) -> float:
    """Median milliseconds of processor time for a frame that wasn't drawn before."""
    taken = []
    for head, step in product(heads, range(walk._steps)):
        walk.head, walk.step = head, step
        start = time.thread_time()
        assert walk.frame
        taken.append(1000 * (time.thread_time() - start))
    return median(taken)


def measure_clicks(page, root, *, n_steps=11, n_heads=8) -> tuple[float, float]:
    """Median milliseconds from a click to the painted picture: of seen frames, and of new ones.

    `n_steps` is fewer than the stepper has: it's walked to the end and back.
    """
    image = root.locator(".kv-picture img").element_handle()
    root.get_by_role("button", name="First").click()
    ways = [root.get_by_role("button", name=name).element_handle() for name in ("Next", "Previous")]
    head = root.locator("select[data-name=head]").element_handle()
    seen, new = [], []
    for _ in range(n_steps):
        page.wait_for_timeout(500)
        page.evaluate(PAINTED, [ways[0], image])
    for way in (ways[1], ways[0]):
        for _ in range(n_steps):
            page.wait_for_timeout(100)
            seen.append(page.evaluate(PAINTED, [way, image]))
    for _ in range(n_heads):
        page.wait_for_timeout(600)
        new.append(page.evaluate(PAINTED, [head, image]))
    return median(seen), median(new)


def open_and_click() -> tuple[float, float]:
    """Run `measure_clicks` in a separate JupyterLab."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "walk.ipynb").write_text(browser.notebook([NOTEBOOK]))
        with browser.jupyterlab(Path(folder)) as lab, browser.browser() as chrome:
            page = chrome.new_page(viewport={"width": 1280, "height": 1000})
            client = browser.run_all(page, lab, "walk.ipynb")
            times = measure_clicks(page, page.locator(".kvviz-stepper"))
            client.stop_channels()
    return times


def main(n_new=12, n_long=43, n_heads=3, clicks=True) -> bool:
    cached, uncached = record(n_new, cached=True), record(n_new, cached=False)
    walk = kv.stepper(cached, uncached=uncached, layer=13)
    long = kv.stepper(record(n_long, cached=True, layers=[13]))
    beside = kv.stepper(cached, uncached=uncached, layer=13, beside=True)
    heads = range(n_heads)
    costs = {"a new frame, with the cache": (measure_frames(walk, heads), 60)}
    walk.cached = False
    costs["a new frame, without a cache"] = (measure_frames(walk, heads), 60)
    costs["a new frame, both beside each other"] = (measure_frames(beside, heads), 100)
    costs["a new frame of a long run"] = (measure_frames(long, heads[:2]), 60)
    if clicks and browser.chromium():
        seen, new = open_and_click()
        costs["from click to paint, seen before"] = (seen, 60)
        costs["from click to paint, new"] = (new, 150)
    else:
        print("clicks were not measured: that needs a browser")
    for name, (cost, limit) in costs.items():
        print(f"{name}: {cost:.0f} ms, at most {limit}")
    return all(cost <= limit for cost, limit in costs.values())
