"""What a step of the forge costs, compared with the library's `generate`.

Both use the same weights and prompt and take turns; the results are medians of paired ratios. No
decode step can be faster than reading all weights once, so that is timed too.
"""

import kvviz as kv

PROMPT = "The first law of motion states"


def main(rounds=15, n_new=40) -> bool:
    model, tokenizer = kv.load_model()
    forge = kv.Forge.from_pretrained(model)
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids

    def generate():
        return model.generate(ids, min_new_tokens=n_new, max_new_tokens=n_new, do_sample=False)

    def decode():
        cache, fed = kv.KVCache(len(forge.layers)), ids
        for _ in range(n_new):
            fed = forge(fed, cache)[:, -1:].argmax(-1)

    def read():
        return sum(float(weight.sum()) for weight in forge.parameters())

    calls = {"generate": generate, "forge": decode, "weights read once": read}
    times = kv.timing.compare(calls, rounds=rounds)
    print(f"{n_new} tokens each", times, sep="\n")
    for name in ("generate", "forge"):
        print(f"{name}: {times.median(name) / n_new * 1e3:.1f} ms a token")
    print(f"weights read once: {times.median('weights read once') * 1e3:.1f} ms")
    print(f"forge: {times.ratio('forge'):.3f}, at most 0.95")
    return times.ratio("forge") <= 0.95
