"""Draw the README's pictures from a real run, the one in notebook 00: python -m tools.readme"""

import kvviz as kv
from tools.notebooks import ROOT

STILL = ROOT / "docs" / "square-becomes-row.png"
MOVING = STILL.with_suffix(".gif")


def main() -> None:
    model, tokenizer = kv.load_model()
    ids = tokenizer("The first law of motion states", return_tensors="pt").input_ids
    runs = []
    for use_cache in (False, True):
        with kv.record(model, tokenizer) as run:
            model.generate(ids, max_new_tokens=9, do_sample=False, use_cache=use_cache)
        runs.append(run)
    plain, cached = runs
    kv.draw_side_by_side(plain, cached, step=4, layer=13, head=8).save(STILL)
    kv.animate(cached, uncached=plain, layer=13, head=8).save(MOVING)


if __name__ == "__main__":
    main()
