"""Cached loops: right ones, right but unusual ones, and wrong ones as learners write them."""

import copy

import torch
from transformers import DynamicCache, StaticCache


def _choose(out):
    return out.logits[:, -1:].argmax(-1)


# -- right ---------------------------------------------------------------------------------------


def right(model, ids, n):
    out = model(ids, use_cache=True)
    produced = [_choose(out)]
    for _ in range(n - 1):
        out = model(produced[-1], cache=out.cache)
        produced.append(_choose(out))
    return torch.cat([ids, *produced], dim=-1)


def _then_decode(model, ids, n, out, cache):
    produced = [_choose(out)]
    for _ in range(n - 1):
        produced.append(_choose(model(produced[-1], cache=cache)))
    return torch.cat([ids, *produced], dim=-1)


def token_by_token(model, ids, n):
    cache = DynamicCache(config=model.config)
    for token in ids.split(1, dim=1):
        out = model(token, cache=cache)
    return _then_decode(model, ids, n, out, cache)


def in_chunks(model, ids, n):
    cache = DynamicCache(config=model.config)
    for chunk in ids.split(3, dim=1):
        out = model(chunk, cache=cache)
    return _then_decode(model, ids, n, out, cache)


def copied_each_step(model, ids, n):
    out = model(ids, use_cache=True)
    produced = [_choose(out)]
    for _ in range(n - 1):
        out = model(produced[-1], cache=copy.deepcopy(out.cache))
        produced.append(_choose(out))
    return torch.cat([ids, *produced], dim=-1)


def last_token_fed_too(model, ids, n):
    out = model(ids, use_cache=True)
    produced = []
    for _ in range(n):
        produced.append(_choose(out))
        out = model(produced[-1], cache=out.cache)
    return torch.cat([ids, *produced], dim=-1)


def positions_by_hand(model, ids, n):
    out = model(ids, position_ids=torch.arange(ids.shape[1])[None], use_cache=True)
    produced = [_choose(out)]
    for step in range(n - 1):
        position = torch.tensor([[ids.shape[1] + step]])
        out = model(produced[-1], position_ids=position, cache=out.cache)
        produced.append(_choose(out))
    return torch.cat([ids, *produced], dim=-1)


def static_cache(model, ids, n):
    cache = StaticCache(model.config, max_cache_len=ids.shape[1] + n + 5)
    return _then_decode(model, ids, n, model(ids, cache=cache), cache)


def by_generate(model, ids, n):
    return model.generate(ids, max_new_tokens=n, do_sample=False)


RIGHT = [right, token_by_token, in_chunks, copied_each_step, last_token_fed_too]
RIGHT += [positions_by_hand, static_cache, by_generate]

# -- wrong ---------------------------------------------------------------------------------------


def whole_sequence_fed(model, ids, n):
    cache = DynamicCache(config=model.config)
    for _ in range(n):
        ids = torch.cat([ids, _choose(model(ids, cache=cache))], dim=-1)
    return ids


def never_passed_on(model, ids, n):
    out = model(ids, use_cache=True)
    produced = [_choose(out)]
    for _ in range(n - 1):
        produced.append(_choose(model(produced[-1], use_cache=True)))
    return torch.cat([ids, *produced], dim=-1)


def never_read(model, ids, n):
    for _ in range(n):
        ids = torch.cat([ids, _choose(model(ids, use_cache=True))], dim=-1)
    return ids


def prompts_last_token_fed(model, ids, n):
    out = model(ids, use_cache=True)
    produced = [_choose(out)]
    for _ in range(n - 1):
        out = model(ids[:, -1:], cache=out.cache)
        produced.append(_choose(out))
    return torch.cat([ids, *produced], dim=-1)


def two_tokens_fed(model, ids, n):
    out = model(ids, use_cache=True)
    for _ in range(n - 1):
        ids = torch.cat([ids, _choose(out)], dim=-1)
        out = model(ids[:, -2:], cache=out.cache)
    return torch.cat([ids, _choose(out)], dim=-1)


def position_not_advanced(model, ids, n):
    out = model(ids, position_ids=torch.arange(ids.shape[1])[None], use_cache=True)
    produced = [_choose(out)]
    for _ in range(n - 1):
        position = torch.tensor([[ids.shape[1]]])
        out = model(produced[-1], position_ids=position, cache=out.cache)
        produced.append(_choose(out))
    return torch.cat([ids, *produced], dim=-1)


def position_restarts(model, ids, n):
    out = model(ids, use_cache=True)
    produced = [_choose(out)]
    for _ in range(n - 1):
        out = model(produced[-1], position_ids=torch.zeros(1, 1).long(), cache=out.cache)
        produced.append(_choose(out))
    return torch.cat([ids, *produced], dim=-1)


def shared_cache():
    """A loop whose cache outlives the call, as a default argument does."""
    kept = []

    def loop(model, ids, n):
        cache = kept[0] if kept else DynamicCache(config=model.config)
        kept.append(cache)
        return _then_decode(model, ids, n, model(ids, cache=cache), cache)

    return loop


def filled_before(model, text):
    """A loop that is given a cache which another text has filled."""
    cache = model(text).cache

    def loop(model, ids, n):
        used = copy.deepcopy(cache)
        return _then_decode(model, ids, n, model(ids, cache=used), used)

    return loop


def wrong_axis(model, ids, n):
    out = model(ids, use_cache=True)
    produced = [out.logits[:, -1:].argmax(1)]
    for _ in range(n - 1):
        out = model(produced[-1], cache=out.cache)
        produced.append(out.logits[:, -1:].argmax(1))
    return torch.cat([ids, *produced], dim=-1)


def over_the_rows(model, ids, n):
    out = model(ids, use_cache=True)
    produced = [out.logits[:, :, 0].argmax(1, keepdim=True)]
    for _ in range(n - 1):
        out = model(produced[-1], cache=out.cache)
        produced.append(out.logits[:, :, 0].argmax(1, keepdim=True))
    return torch.cat([ids, *produced], dim=-1)


def every_rows_choice(model, ids, n):
    out = model(ids, use_cache=True)
    token = out.logits.argmax(-1)
    produced = [token[:, -1:]]
    for _ in range(n - 1):
        out = model(token, cache=out.cache)
        token = out.logits.argmax(-1)
        produced.append(token[:, -1:])
    return torch.cat([ids, *produced], dim=-1)


def one_too_few(model, ids, n):
    return right(model, ids, n - 1)


def one_too_many(model, ids, n):
    return right(model, ids, n + 1)


def without_the_prompt(model, ids, n):
    return right(model, ids, n)[:, ids.shape[1] :]


def never_calls(model, ids, n):
    return torch.cat([ids, ids[:, :n]], dim=-1)


def raises(model, ids, n):
    out = model(ids, use_cache=True)
    return out.past_kv


def changes_the_prompt(model, ids, n):
    out = right(model, ids, n)
    ids.zero_()
    return out


def returns_text(model, ids, n):
    right(model, ids, n)
    return "that an object at rest"


def prompt_reversed(model, ids, n):
    return torch.cat([ids, right(model, ids.flip(1), n)[:, ids.shape[1] :]], dim=-1)


def prompt_token_skipped(model, ids, n):
    cache = model(ids[:, :-2], use_cache=True).cache
    return _then_decode(model, ids, n, model(ids[:, -1:], cache=cache), cache)


def starts_over(model, ids, n):
    right(model, ids, 3)
    return right(model, ids, n)


def last_token_changed(model, ids, n):
    out = right(model, ids, n)
    out[0, -1] = 3
    return out


def drawn_at_random(model, ids, n):
    """Right on the first call; drawn at random on every later one."""
    calls = drawn_at_random.calls = getattr(drawn_at_random, "calls", 0) + 1
    if calls % 2:
        return right(model, ids, n)
    out = model(ids, use_cache=True)
    produced = [out.logits[:, -1:].topk(2).indices[..., 1]]
    for _ in range(n - 1):
        out = model(produced[-1], cache=out.cache)
        produced.append(out.logits[:, -1:].topk(2).indices[..., 1])
    return torch.cat([ids, *produced], dim=-1)


WRONG = {
    whole_sequence_fed: ("whole sequence fed", "the cache held 6 and you fed 7"),
    never_passed_on: ("cache not passed on", "you fed 1 token and the cache held nothing"),
    never_read: ("cache never read", "7 rows were computed, and nothing was read"),
    prompts_last_token_fed: ("prompt's last token fed", "was fed again"),
    two_tokens_fed: ("token fed twice", "you fed 2 tokens, and the cache already held the first"),
    position_not_advanced: ("position not advanced", "is at position 7, but was given 6"),
    position_restarts: ("position not advanced", "is at position 6, but was given 0"),
    wrong_axis: ("argmax over the wrong axis", "as many as the vocabulary has"),
    over_the_rows: ("argmax over the wrong axis", "had the highest score"),
    every_rows_choice: ("several tokens fed", "you fed 6 tokens, and one was new"),
    prompt_reversed: ("prompt not fed as given", "at position 0, but the prompt has"),
    prompt_token_skipped: ("prompt not fed as given", "at position 4, but the prompt has"),
    starts_over: ("started over", "the text was started over"),
    last_token_changed: ("another token returned", "at position "),
    one_too_few: ("too few tokens", "returned 11 new tokens, expected 12"),
    one_too_many: ("too many tokens", "returned 13 new tokens"),
    without_the_prompt: ("prompt missing", "without the prompt"),
    never_calls: ("model never called", "never called the model"),
    raises: ("raised", "has no attribute 'past_kv'"),
    changes_the_prompt: ("prompt changed", "changed the prompt"),
    returns_text: ("wrong result", "returned str"),
}
