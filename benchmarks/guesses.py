"""What guessing saves: passes and rows for each prompt and number of guesses, and the time.

The text must be the plain cached loop's on several architectures. Where it isn't, the first
token that differs is shown with the gap between the two largest logits there: batches of another
size round differently, so a near tie can fall the other way.
"""

import ast
import sys

import torch
from transformers import DynamicCache

import kvviz as kv
from tools.notebooks import ROOT, sources

sys.path.insert(0, str(ROOT / "tests"))
import small  # noqa: E402

NEAR_TIE = 1e-4  # of the largest logit
PROMPTS = """The first law of motion states
Water boils at
def fibonacci(n):
In 1969, two astronauts
Why is the sky blue?
Once upon a time
The cat sat on the
The sky is blue because
one two three four one two three
1, 2, 3, 4, 5, 6,
A list of colours: red, green, blue, red, green,
for i in range(10): print(i) for i in range(10):
The sea is blue. The sky is blue. The lake is
My favourite book is
Dear Sir or Madam,""".splitlines()


def _read_loop():
    """`look_up` and `generate_with_guesses` as 14's solution has them, without its runs."""
    cells = sources(ROOT / "notebooks/solutions/14-guess-then-roll-back.ipynb")
    functions = [
        node
        for name in ("setup", "solution")
        for node in ast.parse(cells[name]).body
        if isinstance(node, ast.FunctionDef)
    ]
    names = {"torch": torch}
    exec(compile(ast.Module(functions, []), "14's solution", "exec"), names)
    return names["look_up"], names["generate_with_guesses"]


look_up, generate_with_guesses = _read_loop()


def keep_the_past(model):
    """The model with a cache that keeps what has left a window until the next `crop`."""

    def call(ids, cache=None, use_cache=True):
        if cache is None:
            cache = DynamicCache(config=model.config)
            cache.activate_past_recording()
        return model(ids, cache=cache, use_cache=use_cache)

    return call


@torch.no_grad()
def count(model, ids, n, k, call=None):
    """(text, rows of each pass) of the loop that guesses; `call` stands in for the model."""
    rows = []
    hook = model.register_forward_pre_hook(lambda _, given: rows.append(given[0].shape[1]))
    try:
        return generate_with_guesses(call or model, ids, n, k), rows
    finally:
        hook.remove()


@torch.no_grad()
def first_difference(model, text, right):
    """The first place where two texts differ, and how near the tie is there; None if equal."""
    places = (text[0] != right[0]).nonzero()
    if not len(places):
        return None
    place = int(places[0])
    logits = model(right[:, :place], use_cache=False).logits[0, -1]
    first, second = logits.topk(2).values
    return place, float((first - second) / logits.abs().max())


def tell(name, k, model, text, right) -> bool:
    """Whether the text is right, but for a near tie; a difference is printed either way."""
    if (found := first_difference(model, text, right)) is None:
        return True
    place, gap = found
    what = "a near tie" if gap <= NEAR_TIE else "NOT a tie"
    print(f"{name}, k {k}: token {place} differs, {what} (the best two differ by {gap:.1e})")
    return gap <= NEAR_TIE


def print_table(title, n, table, equal):
    """Passes (rows) of each prompt, a column for each k, and the totals."""
    ks = next(iter(table.values()))
    total = {k: [sum(row[k][part] for row in table.values()) for part in (0, 1)] for k in ks}
    print(f"\n{title}: passes (rows) for {n} tokens; {equal} texts are the plain cached loop's")
    width = max(map(len, (*table, "total")))
    print(f"{'':<{width}}", *(f"{f'k = {k}':>10}" for k in total))
    for name, row in {**table, "total": total}.items():
        cells = (f"{passes} ({rows})" for passes, rows in row.values())
        print(f"{name:<{width}}", *(f"{cell:>10}" for cell in cells))


def sweep(title, model, prompts, n, ks, call=None) -> tuple[bool, dict]:
    """Print passes (rows) by prompt and k; return whether the texts are right, and the passes."""
    within, equal, table = True, 0, {}
    for name, ids in prompts.items():
        right, table[name] = small.cached_loop(model, ids, n), {}
        for k in (0, *ks):
            text, rows = count(model, ids, n, k, call)
            table[name][k] = (len(rows), sum(rows))
            equal += torch.equal(text, right)
            within &= tell(f"{title}, {name}", k, model, text, right)
    print_table(title, n, table, f"{equal} of {len(table) * (len(ks) + 1)}")
    return within, table


def compare_time(model, prompts, table, n, k, rounds) -> bool:
    """Time both loops on the prompt with the fewest passes, and on the one with the most."""
    passes, faster = {name: row[k][0] for name, row in table.items()}, {}
    for name in (min(passes, key=passes.get), max(passes, key=passes.get)):
        ids = prompts[name]
        with torch.no_grad():
            calls = {
                "guesses": lambda ids=ids: generate_with_guesses(model, ids, n, k),
                "plain": lambda ids=ids: small.cached_loop(model, ids, n),
            }
            times = kv.timing.compare(calls, rounds=rounds)
        faster[name] = times.ratio("plain")
        print(f"\n{name!r}, k {k}: {passes[name]} passes of {n}", times, sep="\n")
        print(f"plain / guesses: {faster[name]:.2f}")
    return next(iter(faster.values())) >= 1


def random_prompts() -> dict:
    """Nine prompts of random tokens, and six that say the same tokens four times."""
    lengths = (1, 2, 3, 5, 8, 13, 21, 34, 55)
    once = {f"{n} random tokens": small.prompt(n, seed=n) for n in lengths}
    again = {f"{n} tokens, four times": small.prompt(n, seed=n).repeat(1, 4) for n in range(1, 7)}
    return {**once, **again}


def main(rounds=15, n_new=24, ks=range(1, 9), timed=4, n_prompts=15) -> bool:
    model, tokenizer = kv.load_model()
    texts = {text: tokenizer(text, return_tensors="pt").input_ids for text in PROMPTS[:n_prompts]}
    within, table = sweep("default model", model, texts, n_new, ks)
    prompts = dict(list(random_prompts().items())[-n_prompts:])
    for build in (small.gpt2, small.gpt_neox, small.mistral, small.gemma3):
        random = build()
        call = keep_the_past(random) if getattr(random.config, "sliding_window", None) else None
        within &= sweep(f"small {build.__name__}", random, prompts, n_new, ks, call)[0]
    return compare_time(model, texts, table, n_new, timed, rounds) and within
