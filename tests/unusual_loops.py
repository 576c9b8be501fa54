"""Loops that are right in an unusual way, and mistakes of the same kinds.

`RIGHT` pass; `WRONG` must be given that name. Sizes: prompts of any length, greedy.
"""

import copy
import sys

import torch
from transformers import DynamicCache


def _choose(out):
    return out.logits[:, -1:].argmax(-1)


def _new(model):
    return DynamicCache(config=model.config)


def _decode(model, ids, n, feed=None, cache=None):
    """The rest of a right loop: `feed` is fed first, the whole prompt by default."""
    feed = ids if feed is None else feed
    for _ in range(n):
        out = model(feed, cache=cache, use_cache=True)
        cache, feed = out.cache, _choose(out)
        ids = torch.cat([ids, feed], dim=1)
    return ids


# -- the model called in another way -----------------------------------------------------------


def plain_tuples(model, ids, n):
    logits, cache = model(ids, use_cache=True, return_dict=False)
    for step in range(n):
        new = logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], dim=1)
        if step < n - 1:
            logits, cache = model(new, cache=cache, use_cache=True, return_dict=False)
    return ids


def body_and_head(model, ids, n):
    cache, feed = None, ids
    for _ in range(n):
        body = model.base_model(feed, cache=cache, use_cache=True)
        cache = body.cache
        feed = model.get_output_embeddings()(body.last_hidden_state[:, -1:]).argmax(-1)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def body_and_weight(model, ids, n):
    """Its logits are seen by nobody."""
    cache, feed = None, ids
    for _ in range(n):
        body = model.base_model(feed, cache=cache, use_cache=True)
        cache = body.cache
        scores = body.last_hidden_state[:, -1] @ model.get_output_embeddings().weight.T
        feed = scores.argmax(-1, keepdim=True)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def forward_called(model, ids, n):
    cache, feed = None, ids
    for _ in range(n):
        out = model.forward(feed, cache=cache, use_cache=True)
        cache, feed = out.cache, _choose(out)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def embeddings_fed(model, ids, n):
    embed, cache, feed = model.get_input_embeddings(), None, ids
    for _ in range(n):
        out = model(inputs_embeds=embed(feed), cache=cache, use_cache=True)
        cache, feed = out.cache, _choose(out)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def one_row_of_logits(model, ids, n):
    cache, feed = None, ids
    for _ in range(n):
        out = model(feed, cache=cache, use_cache=True, logits_to_keep=1)
        cache, feed = out.cache, out.logits.argmax(-1)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def copied_model(model, ids, n):
    return _decode(copy.deepcopy(model), ids, n)


def same_prompt_twice_in_a_batch(model, ids, n):
    return _decode(model, ids.repeat(2, 1), n)[:1]


def two_texts_that_change_places(model, ids, n):
    """A batch of the greedy text and another one; in each step its sequences are reordered."""
    cache, feed, at = _new(model), ids.repeat(2, 1), 0
    for _ in range(n):
        first, second = model(feed, cache=cache).logits[:, -1:].topk(2).indices.unbind(-1)
        choices = first if at == 0 else first.flip(0)  # the greedy text's in front
        ids = torch.cat([ids, choices[:1]], dim=1)
        others = second if at == 0 else second.flip(0)
        feed, at = torch.cat([choices[:1], others[1:]]), 1 - at
        feed = feed if at == 0 else feed.flip(0)
        cache.batch_select_indices(torch.tensor([1, 0]))
    return ids


# -- more rows, or fewer passes, than the plain cached loop --------------------------------------


def cropped_and_fed_again(model, ids, n):
    out = model(ids, use_cache=True)
    for step in range(n):
        ids = torch.cat([ids, _choose(out)], dim=1)
        if step < n - 1:
            out.cache.crop(-1)
            out = model(ids[:, -2:], cache=out.cache)
    return ids


def two_caches(model, ids, n):
    caches, feed = [_new(model), _new(model)], ids
    for _ in range(n):
        feed = [_choose(model(feed, cache=cache)) for cache in caches][0]
        ids = torch.cat([ids, feed], dim=1)
    return ids


def second_best_tried(model, ids, n):
    """The runner-up is tried at each step, and taken out again."""
    out = model(ids, use_cache=True)
    for step in range(n):
        best, other = out.logits[:, -1:].topk(2).indices.unbind(-1)
        ids = torch.cat([ids, best], dim=1)
        if step < n - 1:
            model(other, cache=out.cache)
            out.cache.crop(-1)
            out = model(best, cache=out.cache)
    return ids


def second_best_tried_on_a_copy(model, ids, n):
    out = model(ids, use_cache=True)
    for step in range(n):
        best, other = out.logits[:, -1:].topk(2).indices.unbind(-1)
        ids = torch.cat([ids, best], dim=1)
        if step < n - 1:
            model(other, cache=copy.deepcopy(out.cache))
            out = model(best, cache=out.cache)
    return ids


def _guess(model, ids, n, guesses, crop=True):
    """Verify `guesses(text)` in one call, and take out those that are wrong."""
    total, cache = ids.shape[1] + n, _new(model)
    ids = torch.cat([ids, _choose(model(ids, cache=cache))], dim=1)
    while ids.shape[1] < total:
        guess = guesses(ids)[:, : total - ids.shape[1] - 1]
        out = model(torch.cat([ids[:, -1:], guess], dim=1), cache=cache)
        said = out.logits.argmax(-1)
        n_right = int((said[:, :-1] == guess).long().cumprod(-1).sum())
        ids = torch.cat([ids, said[:, : n_right + 1]], dim=1)
        if crop and n_right < guess.shape[1]:
            cache.crop(n_right - guess.shape[1])
    return ids


def guesses_from_the_text(model, ids, n):
    """What followed the same token before."""

    def guesses(text):
        *earlier, newest = text[0].tolist()
        at = max((i for i, token in enumerate(earlier) if token == newest), default=0)
        return text[:, at + 1 : at + 3]

    return _guess(model, ids, n, guesses)


def guesses_at_random(model, ids, n):
    drawn = torch.Generator().manual_seed(3)
    return _guess(model, ids, n, lambda _: torch.randint(5, 90, (1, 3), generator=drawn))


def prompt_lookup(model, ids, n):
    return model.generate(ids, max_new_tokens=n, do_sample=False, prompt_lookup_num_tokens=2)


def assisted_by_itself(model, ids, n):
    return model.generate(ids, max_new_tokens=n, do_sample=False, assistant_model=model)


def warmed_up(model, ids, n):
    model(torch.zeros(1, 1, dtype=torch.long))
    return _decode(model, ids, n)


RIGHT = [plain_tuples, body_and_head, body_and_weight, forward_called, embeddings_fed]
RIGHT += [one_row_of_logits, copied_model, same_prompt_twice_in_a_batch, cropped_and_fed_again]
RIGHT += [two_caches, second_best_tried, second_best_tried_on_a_copy, guesses_at_random]
RIGHT += [guesses_from_the_text, prompt_lookup, assisted_by_itself, warmed_up]
RIGHT += [two_texts_that_change_places]

# -- wrong ---------------------------------------------------------------------------------------


def rest_of_the_prompt_twice(model, ids, n):
    cache = _new(model)
    for chunk in (ids[:, :3], ids[:, 3:], ids[:, 3:]):
        out = model(chunk, cache=cache)
    new = _choose(out)
    return _decode(model, torch.cat([ids, new], dim=1), n - 1, new, cache)


def each_token_twice(model, ids, n):
    out = model(ids, use_cache=True)
    for step in range(n):
        ids = torch.cat([ids, _choose(out)], dim=1)
        if step < n - 1:
            model(ids[:, -1:], cache=out.cache)
            out = model(ids[:, -1:], cache=out.cache)
    return ids


def wrong_guesses_stay(model, ids, n):
    return _guess(model, ids, n, lambda _: torch.tensor([[7, 7]]), crop=False)[:, : len(ids[0]) + n]


def cut_to_one(model, ids, n):
    out = model(ids, use_cache=True)
    for step in range(n):
        ids = torch.cat([ids, _choose(out)], dim=1)
        if step < n - 1:
            out.cache.crop(1 - out.cache.get_seq_length())
            out = model(ids[:, 1:], cache=out.cache)
    return ids


def cache_begun_again(model, ids, n):
    for step in range(n):
        if step % 4 == 0:
            cache, feed = None, ids
        out = model(feed, cache=cache, use_cache=True)
        cache, feed = out.cache, _choose(out)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def first_row_chosen(model, ids, n):
    cache, feed = None, ids
    for _ in range(n):
        out = model(feed, cache=cache, use_cache=True)
        cache, feed = out.cache, out.logits[:, :1].argmax(-1)
        ids = torch.cat([ids, feed], dim=1)
    return ids


def sampled(model, ids, n):
    return model.generate(ids, max_new_tokens=n, do_sample=True, temperature=3.0)


def second_best(model, ids, n):
    cache, feed = None, ids
    for _ in range(n):
        out = model(feed, cache=cache, use_cache=True)
        cache, feed = out.cache, out.logits[:, -1:].topk(2).indices[..., 1]
        ids = torch.cat([ids, feed], dim=1)
    return ids


def goes_on_for_ever(model, ids, n):
    out = model(ids, use_cache=True)
    while True:
        out = model(_choose(out), cache=out.cache)


def prompt_for_ever(model, ids, n):
    while True:
        model(ids, use_cache=True)


def yields(model, ids, n):
    yield from _decode(model, ids, n)


async def awaited(model, ids, n):
    return _decode(model, ids, n)


def three_more(model, ids, n):
    return _decode(model, ids, n + 3)


def pair_returned(model, ids, n):
    return _decode(model, ids, n), n


def floats_returned(model, ids, n):
    return _decode(model, ids, n).float()


def nothing_returned(model, ids, n):
    _decode(model, ids, n)


def empty_tensor_returned(model, ids, n):
    return _decode(model, ids, n).to("meta")


def last_token_returned(model, ids, n):
    return _decode(model, ids, n)[:, -1:]


def exits(model, ids, n):
    sys.exit("enough")


def takes_two(model, ids):
    return ids


def error_without_words(model, ids, n):
    class Silent(Exception):
        def __str__(self):
            raise ValueError

    raise Silent


def other_embeddings(model, ids, n):
    out = model(inputs_embeds=model.get_input_embeddings()(ids) * 1.5, use_cache=True)
    new = _choose(out)
    return _decode(model, torch.cat([ids, new], dim=1), n - 1, new, out.cache)


def cache_doubled(model, ids, n):
    out = model(ids, use_cache=True)
    for layer in out.cache.layers:
        layer.keys, layer.values = (torch.cat([x, x], 2) for x in (layer.keys, layer.values))
    new = _choose(out)
    return _decode(model, torch.cat([ids, new], dim=1), n - 1, new, out.cache)


WRONG = {
    rest_of_the_prompt_twice: ("fed twice", "positions 3 to 5 of the text"),
    each_token_twice: ("fed twice", "again, and the cache already held it"),
    wrong_guesses_stay: ("wrong guess kept", "'7' was fed at position 7 as a guess"),
    cut_to_one: ("most fed again", "were taken out of the cache and fed again"),
    cache_begun_again: ("cache never read", "step 4: 10 rows were computed"),
    first_row_chosen: ("wrong row", "it is the best of row 0, and the last row is 5"),
    sampled: ("not greedy", "random numbers were drawn"),
    second_best: ("not greedy", "was chosen for position 6, but "),
    goes_on_for_ever: ("endless loop", "it went on and on; it called the model 560 times"),
    prompt_for_ever: ("endless loop", "it went on and on; it called the model 560 times"),
    yields: ("yields", "return them instead"),
    awaited: ("yields", "an async function"),
    three_more: ("too many tokens", "returned 15 new tokens, expected 12"),
    pair_returned: ("wrong result", "a tuple of 2 items"),
    floats_returned: ("wrong result", "torch.float32"),
    nothing_returned: ("wrong result", "returned nothing"),
    empty_tensor_returned: ("wrong result", "on meta"),
    last_token_returned: ("wrong result", "returned 1 token, fewer than the prompt has"),
    exits: ("raised", "SystemExit: enough"),
    takes_two: ("raised", "takes 2 positional arguments but 3 were given"),
    error_without_words: ("raised", "your loop raised Silent"),
    other_embeddings: ("prompt not fed as given", "an embedding of no token"),
    cache_doubled: ("written twice", "the cache held 12, after only 6 tokens had been fed"),
}
