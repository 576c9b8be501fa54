"""Run notebook 08's own cells on this machine, and print their numbers."""

from tools.notebooks import ROOT, sources

CELLS = ("setup", "two-loops", "three-ratios", "floor", "floor-drawn", "parts", "a-second")


def main() -> bool:
    cells = sources(ROOT / "notebooks" / "08-time-it.ipynb")
    names: dict = {}
    for name in CELLS:
        exec(compile(cells[name], name, "exec"), names)
    ratios, over, times = (names[name] for name in ("ratios", "over", "times"))
    print(f"20 and 60, plain over cached: {ratios['positions']:.1f} times the positions,")
    print(f"{ratios['cells']:.1f} times the cells, {ratios['time']:.2f} times the time")
    print(times)
    print(f"a decode step over reading the weights: {over['decode, 20 held']:.2f}")
    print("tokens a second:", ", ".join(f"{name} {n:.0f}" for name, n in names["rate"].items()))
    copied = times.ratio("cat", "one column")
    print(f"a copy of 2,000 columns over writing one: {copied:.1f}")
    return ratios["time"] > 1 and over["decode, 20 held"] > 1 and copied > 2
