"""What a step costs: a new frame in the kernel, and from a click to the picture on the screen."""

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
from benchmarks.stepper import recorded
cached, plain = recorded(12, cached=True), recorded(12, cached=False)
kv.stepper(cached, plain, layer=13, head=0)
"""
PAINTED = """([control, image]) => new Promise((done) => {
  const start = performance.now(), told = new MutationObserver(() => {
    told.disconnect();
    requestAnimationFrame(() => setTimeout(() => done(performance.now() - start)));
  });
  told.observe(image, { attributes: true, attributeFilter: ["src"] });
  if (control.matches("button")) return control.click();
  control.selectedIndex += 1;
  control.dispatchEvent(new Event("change", { bubbles: true }));
})"""


@torch.no_grad()
def recorded(new: int, *, cached: bool, **options):
    """The running example, by the plain loop or the cached one."""
    model, tokenizer = kv.load_model()
    seen = fed = tokenizer(PROMPT, return_tensors="pt").input_ids
    cache = None
    with kv.record(model, tokenizer, **options) as run:
        for _ in range(new):
            out = model(fed if cached else seen, cache=cache, use_cache=cached)
            fed, cache = out.logits[:, -1:].argmax(-1), out.cache
            seen = torch.cat([seen, fed], dim=-1)
    return run


def frames(walk, heads) -> float:
    """Milliseconds of processor time for a frame not seen before, median; others do not count."""
    taken = []
    for head, step in product(heads, range(walk._steps)):
        walk.head, walk.step = head, step
        start = time.thread_time()
        assert walk.frame
        taken.append(1000 * (time.thread_time() - start))
    return median(taken)


def clicks() -> tuple[float, float]:
    """Milliseconds from a click to the picture painted: seen before, and new; medians."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "walk.ipynb").write_text(browser.notebook([NOTEBOOK]))
        with browser.jupyterlab(Path(folder)) as lab, browser.browser() as chrome:
            page = chrome.new_page(viewport={"width": 1280, "height": 1000})
            client = browser.run_all(page, lab, "walk.ipynb")
            root = page.locator(".kvviz-stepper")
            image = root.locator("img").element_handle()
            following = root.get_by_role("button", name="Next").element_handle()
            head = root.get_by_label("Head").element_handle()
            seen, new = [], []
            for _ in range(12):
                page.wait_for_timeout(500)
                page.evaluate(PAINTED, [following, image])
            for _ in range(24):
                page.wait_for_timeout(100)
                seen.append(page.evaluate(PAINTED, [following, image]))
            for _ in range(8):
                page.wait_for_timeout(600)
                new.append(page.evaluate(PAINTED, [head, image]))
            client.stop_channels()
    return median(seen), median(new)


def main() -> bool:
    cached, plain = recorded(12, cached=True), recorded(12, cached=False)
    walk, long = kv.stepper(cached, plain, layer=13), recorded(43, cached=True, layers=[13])
    costs = {"a new frame, with the cache": (frames(walk, range(3)), 60)}
    walk.cached = False
    costs["a new frame, without a cache"] = (frames(walk, range(3)), 60)
    beside = kv.stepper(cached, plain, layer=13, beside=True)
    costs["a new frame, both beside each other"] = (frames(beside, range(3)), 100)
    costs["a new frame, 48 tokens"] = (frames(kv.stepper(long), range(2)), 60)
    if browser.chromium():
        seen, new = clicks()
        costs["from click to paint, seen before"] = (seen, 60)
        costs["from click to paint, new"] = (new, 150)
    else:
        print("no browser found: clicks were not measured")
    for name, (cost, limit) in costs.items():
        print(f"{name}: {cost:.0f} ms, at most {limit}")
    return all(cost <= limit for cost, limit in costs.values())
