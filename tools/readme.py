"""Draw the README's picture from a real run, as notebook 00 does: python -m tools.readme"""

import kvviz as kv
from tools.notebooks import ROOT

PICTURE = ROOT / "docs" / "square-becomes-row.png"


def main() -> None:
    model, tokenizer = kv.load_model()
    ids = tokenizer("The first law of motion states", return_tensors="pt").input_ids
    runs = []
    for use_cache in (False, True):
        with kv.record(model, tokenizer) as run:
            model.generate(ids, max_new_tokens=5, do_sample=False, use_cache=use_cache)
        runs.append(run)
    PICTURE.parent.mkdir(exist_ok=True)
    kv.side_by_side(*runs, step=4, layer=13, head=8).save(PICTURE)


if __name__ == "__main__":
    main()
