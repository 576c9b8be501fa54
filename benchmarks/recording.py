"""What recording costs, compared with the same loop unrecorded, as medians of paired ratios.

Recording only counts is compared with plain generation, and recording one layer's attention with
the library's eager attention.
"""

import torch

import kvviz as kv

PROMPT = "The first law of motion states"


def main(rounds=9, n_new=24) -> bool:
    model, tokenizer = kv.load_model()
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids

    @torch.no_grad()
    def generate():
        out = model(ids, use_cache=True)
        for _ in range(n_new - 1):
            token = out.logits[:, -1:].argmax(-1)
            out = model(token, cache=out.cache, use_cache=True)

    def recorded(**options):
        with kv.record(model, tokenizer, **options):
            generate()

    plain = {"plain generation": generate, "recorded, counts only": lambda: recorded(keep=())}
    counts = kv.timing.compare(plain, rounds=rounds)
    usual = model.config._attn_implementation
    model.set_attn_implementation("eager")
    eager = {"eager attention": generate, "recorded, one layer": lambda: recorded(layers=[13])}
    attention = kv.timing.compare(eager, rounds=rounds)
    model.set_attn_implementation(usual)
    print(counts, attention, sep="\n")
    costs = counts.ratio("recorded, counts only"), attention.ratio("recorded, one layer")
    limits = 1.05, 1.15
    for name, cost, limit in zip(("counts only", "one layer"), costs, limits, strict=True):
        print(f"{name}: {cost:.3f}, at most {limit}")
    return all(cost <= limit for cost, limit in zip(costs, limits, strict=True))
