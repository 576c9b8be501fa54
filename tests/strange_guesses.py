"""Loops that guess, written by somebody who had read notebook 14 and nothing of the checks.

Each wrong one has one mistake, which its docstring names. They stand as they were written.
"""
# ruff: noqa: E501, B905

import copy

import torch
from transformers import DynamicCache


def latest(text, k, longest=3):
    """What followed the last few tokens where they stood most recently before."""
    for size in range(longest, 0, -1):
        for start in range(len(text) - size - 1, -1, -1):
            if text[start : start + size] == text[-size:]:
                return text[start + size : start + size + k]
    return []


def leading(guesses, choices):
    """How many guesses are right, from the first on."""
    right = 0
    while right < len(guesses) and guesses[right] == choices[right]:
        right += 1
    return right


def row(tokens):
    return torch.tensor([tokens])


# ---------------------------------------------------------------- right


def look_up_and_crop(model, ids, n):
    """Look-up (last place, up to three tokens), python lists, crop only what was wrong."""
    text = ids[0].tolist()
    end = len(text) + n
    out = model(ids, use_cache=True)
    cache = out.cache
    text.append(int(out.logits[0, -1].argmax()))
    while len(text) < end:
        guesses = latest(text, 5)[: end - len(text) - 1]
        best = (
            model(row([text[-1], *guesses]), cache=cache, use_cache=True)
            .logits[0]
            .argmax(-1)
            .tolist()
        )
        right = leading(guesses, best)
        text += best[: right + 1]
        if right < len(guesses):
            cache.crop(right - len(guesses))
    return row(text)


def make_oracle_loop(oracle):
    def oracle_and_copy(model, ids, n):
        """An oracle's guesses, tried on a deep copy of the cache; a copy with a wrong guess is thrown away
        and the right ones are fed to the original again."""
        out = model(ids, use_cache=True)
        kept, new = out.cache, [int(out.logits[0, -1].argmax())]
        while len(new) < n:
            guesses = oracle(ids[0].tolist() + new)[: n - len(new) - 1]
            trial = copy.deepcopy(kept)
            best = (
                model(row([new[-1], *guesses]), cache=trial, use_cache=True)
                .logits[0]
                .argmax(-1)
                .tolist()
            )
            right = leading(guesses, best)
            if right == len(guesses):
                kept, bonus = trial, best[-1]
            else:
                again = row([new[-1], *guesses[:right]])
                bonus = int(model(again, cache=kept, use_cache=True).logits[0, -1].argmax())
            new += [*guesses[:right], bonus]
        return torch.cat([ids, row(new)], dim=1)

    return oracle_and_copy


def make_oracle(answers, k=6, lie_every=9):
    """Knows finished texts by heart, but lies at each ninth position; knows nothing of other texts."""

    def oracle(text):
        for answer in answers:
            if answer[: len(text)] == text:
                return [
                    (token + 1) % 100 if at % lie_every == 0 else token
                    for at, token in enumerate(answer[len(text) : len(text) + k], len(text))
                ]
        return [text[-1], text[-2]]

    return oracle


oracle_and_copy = make_oracle_loop(make_oracle([]))


def table_and_rebuild(model, ids, n):
    """A table of which token followed which, learnt while running; a new DynamicCache from slices."""
    cache = DynamicCache()
    choice = model(ids, cache=cache, use_cache=True).logits[:, -1:].argmax(-1)
    text = torch.cat([ids, choice], dim=1)
    table, learnt = {}, 0
    while text.shape[1] < ids.shape[1] + n:
        tokens = text[0].tolist()
        table.update(zip(tokens[learnt:], tokens[learnt + 1 :]))
        learnt = len(tokens) - 1
        room, guesses = min(4, ids.shape[1] + n - len(tokens) - 1), []
        while len(guesses) < room and (guesses or tokens)[-1] in table:
            guesses.append(table[(guesses or tokens)[-1]])
        fed = torch.cat([text[:, -1:], torch.tensor([guesses], dtype=torch.long)], dim=1)
        best = model(fed, cache=cache, use_cache=True).logits.argmax(-1)
        same = (best[0, :-1] == fed[0, 1:]).long().cumprod(0).sum().item()
        text = torch.cat([text, best[:, : same + 1]], dim=1)
        keep, old, cache = text.shape[1] - 1, cache, DynamicCache()
        for index, layer in enumerate(old.layers):
            cache.update(layer.keys[:, :, :keep].clone(), layer.values[:, :, :keep].clone(), index)
    return text


def copy_last_and_feed_again(model, ids, n):
    """Guesses the newest token again, three times; crops two known tokens too, and feeds what's missing.
    What's held is asked of the cache, not counted."""
    text, cache = ids[0].tolist(), DynamicCache()
    end = len(text) + n
    while len(text) < end:
        held = cache.get_seq_length()
        missing = text[held:]
        guesses = [text[-1]] * min(3, end - len(text) - 1) if held else []
        logits = model(row(missing + guesses), cache=cache, use_cache=True).logits
        best = logits[0, len(missing) - 1 :].argmax(-1).tolist()
        right = leading(guesses, best)
        if right < len(guesses):
            cache.crop(-(len(guesses) - right + 2))
        text += [*guesses[:right], best[right]]
    return row(text)


def fixed_list_from_the_prompt_on(model, ids, n):
    """Always the same (practically always wrong) guesses, with the prompt's pass too; logits only for the
    rows that matter; each layer's tensors are cut by hand."""
    guesses = torch.tensor([[99, 98, 97]])
    cache, text, todo = None, ids, ids
    while text.shape[1] < ids.shape[1] + n:
        some = guesses[:, : max(0, ids.shape[1] + n - text.shape[1] - 1)]
        rows = some.shape[1] + 1
        fed = torch.cat([todo, some], dim=1)
        out = model(fed, cache=cache, use_cache=True, logits_to_keep=rows)
        cache, best = out.cache, out.logits.argmax(-1)
        differs = (best[:, :-1] != some)[0].nonzero()
        first = int(differs[0]) if len(differs) else rows - 1
        for layer in cache.layers:
            layer.keys = layer.keys[:, :, : text.shape[1] + first]
            layer.values = layer.values[:, :, : text.shape[1] + first]
        todo = best[:, first : first + 1]
        text = torch.cat([text, some[:, :first], todo], dim=1)
    return text


def two_stages_past_the_end(model, ids, n):
    """Two guesses; only if both are right, six more at once in the next pass. Says the positions itself,
    guesses past the end, and cuts the text at the end."""
    out = model(ids, use_cache=True)
    cache, text, held, k = (
        out.cache,
        [*ids[0].tolist(), int(out.logits[0, -1].argmax())],
        ids.shape[1],
        2,
    )
    while held < ids.shape[1] + n - 1:
        guesses = latest(text, k, longest=2)
        guesses += [text[-1]] * (k - len(guesses))
        positions = torch.arange(held, held + 1 + k)[None]
        out = model(row([text[-1], *guesses]), cache=cache, use_cache=True, position_ids=positions)
        best = out.logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        cache.crop(right - k)
        held += right + 1
        text += best[: right + 1]
        k = 6 if right == k else 2
    return row(text)[:, : ids.shape[1] + n]


RIGHT = [
    look_up_and_crop,
    oracle_and_copy,
    table_and_rebuild,
    copy_last_and_feed_again,
    fixed_list_from_the_prompt_on,
    two_stages_past_the_end,
]


# ---------------------------------------------------------------- wrong


def crops_one_too_few(model, ids, n):
    """It crops one wrong guess too few, because the bonus token is thought to take the first wrong guess's
    place in the cache by itself. A checker should say: the rejected guess (which token, which position)
    stayed in the cache after the first pass that had a wrong one; crop as many as were wrong."""
    text = ids[0].tolist()
    end = len(text) + n
    out = model(ids, use_cache=True)
    text.append(int(out.logits[0, -1].argmax()))
    while len(text) < end:
        guesses = latest(text, 4)[: end - len(text) - 1]
        best = model(row([text[-1], *guesses]), cache=out.cache).logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        text += best[: right + 1]
        wrong = len(guesses) - right
        if wrong > 1:
            out.cache.crop(-(wrong - 1))
    return row(text)


def slices_to_minus_zero(model, ids, n):
    """It rolls back with keys[:, :, :-wrong], which empties the cache when all guesses were right (:-0).
    A checker should say: after the first pass whose guesses were all accepted, the whole past was gone
    (0 held instead of so many); nothing had to be removed there; slice to a length or crop instead."""
    text = ids[0].tolist()
    end = len(text) + n
    out = model(ids, use_cache=True)
    cache = out.cache
    text.append(int(out.logits[0, -1].argmax()))
    while len(text) < end:
        guesses = latest(text, 3)[: end - len(text) - 1]
        best = model(row([text[-1], *guesses]), cache=cache).logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        text += best[: right + 1]
        if guesses:
            wrong, fresh = len(guesses) - right, DynamicCache()
            for index, layer in enumerate(cache.layers):
                fresh.update(layer.keys[:, :, :-wrong], layer.values[:, :, :-wrong], index)
            cache = fresh
    return row(text)


def counts_right_ones_anywhere(model, ids, n):
    """It counts all guesses that equal the choice beside them instead of those before the first wrong one,
    so a guess that only matches behind a wrong one lengthens the accepted part. A checker should say: this
    guess was kept though another token had the highest score there, and what comes after the first wrong
    guess can't be trusted: stop counting at the first difference."""
    text = torch.cat([ids, (out := model(ids, use_cache=True)).logits[:, -1:].argmax(-1)], dim=1)
    end, cache = ids.shape[1] + n, out.cache
    while text.shape[1] < end:
        guesses = latest(text[0].tolist(), 4)[: end - text.shape[1] - 1]
        fed = torch.cat([text[:, -1:], torch.tensor([guesses], dtype=torch.long)], dim=1)
        best = model(fed, cache=cache).logits.argmax(-1)
        right = int((best[:, :-1] == fed[:, 1:]).sum())
        if right < len(guesses):
            cache.crop(right - len(guesses))
        text = torch.cat([text, best[:, : right + 1]], dim=1)
    return text


def positions_stay_ahead(model, ids, n):
    """It crops rightly but passes position_ids from its own counter of fed tokens, which isn't set back by
    the wrong guesses. A checker should say: the cache holds the right columns, but from the first roll-back
    on a token was fed at position q instead of p; positions go back with the cache (or leave position_ids
    out)."""
    text = ids[0].tolist()
    end, position = len(text) + n, len(text)
    out = model(ids, use_cache=True)
    text.append(int(out.logits[0, -1].argmax()))
    while len(text) < end:
        guesses = latest(text, 4)[: end - len(text) - 1]
        fed = row([text[-1], *guesses])
        positions = torch.arange(position, position + fed.shape[1])[None]
        position += fed.shape[1]
        best = model(fed, cache=out.cache, position_ids=positions).logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        text += best[: right + 1]
        out.cache.crop(right - len(guesses))
    return row(text)


def backs_up_with_a_shallow_copy(model, ids, n):
    """It keeps copy.copy(cache) to go back to, which shares its layers with the cache, so nothing is undone
    and the right tokens are fed a second time behind the wrong ones. A checker should say: after the
    roll-back the cache still held all fed rows (so many instead of so many), then this token was fed again at
    a higher position; copy deeply or crop."""
    text = ids[0].tolist()
    end = len(text) + n
    cache = model(ids[:, :-1], use_cache=True).cache
    while len(text) < end:
        guesses = latest(text, 4)[: end - len(text) - 1]
        backup = copy.copy(cache)
        best = model(row([text[-1], *guesses]), cache=cache).logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        if right < len(guesses):
            cache = backup
            model(row([text[-1], *guesses[:right]]), cache=cache)
        text += best[: right + 1]
    return row(text)


def feeds_the_last_guess_again(model, ids, n):
    """When all guesses were right it forgets the bonus token and starts the next pass with the last guess,
    which the cache already holds, so that token is in it twice. A checker should say: at this step the token
    of position p was fed again at p + 1; the next pass begins with the last row's own choice, also when all
    guesses were right (or crop one more)."""
    text = ids[0].tolist()
    end = len(text) + n
    out = model(ids, use_cache=True)
    text.append(int(out.logits[0, -1].argmax()))
    while len(text) < end:
        guesses = latest(text, 4)[: end - len(text)]
        best = model(row([text[-1], *guesses]), cache=out.cache).logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        if guesses and right == len(guesses):
            text += guesses
        else:
            text += [*guesses[:right], best[right]]
            out.cache.crop(right - len(guesses))
    return row(text[:end])


WRONG = [
    crops_one_too_few,
    slices_to_minus_zero,
    counts_right_ones_anywhere,
    positions_stay_ahead,
    backs_up_with_a_shallow_copy,
    feeds_the_last_guess_again,
]


# ---------------------------------------------------------------- extra


def two_drafts_in_a_batch(model, ids, n):
    """Two drafts, checked as a batch of two; the better one's cache is selected, then cropped."""
    out = model(ids, use_cache=True)
    cache, text = out.cache, [*ids[0].tolist(), int(out.logits[0, -1].argmax())]
    end = len(text) - 1 + n
    while len(text) < end:
        k = min(3, end - len(text) - 1)
        drafts = [(latest(text, k) + [text[-1]] * k)[:k], [text[-1]] * k]
        cache.batch_repeat_interleave(2)
        fed = torch.tensor([[text[-1], *draft] for draft in drafts])
        best = model(fed, cache=cache, use_cache=True).logits.argmax(-1).tolist()
        right = [leading(*each) for each in zip(drafts, best)]
        better = right.index(max(right))
        cache.batch_select_indices(torch.tensor([better]))
        cache.crop(right[better] - k)
        text += best[better][: right[better] + 1]
    return row(text)


def masks_instead_of_crop(model, ids, n):
    """Never crops: wrong guesses stay in the cache, but are masked for good, and positions are given."""
    out = model(ids, use_cache=True)
    cache, text, seen = (
        out.cache,
        [*ids[0].tolist(), int(out.logits[0, -1].argmax())],
        [1] * ids.shape[1],
    )
    end = ids.shape[1] + n
    while len(text) < end:
        guesses = latest(text, 4)[: end - len(text) - 1]
        fed = row([text[-1], *guesses])
        positions = torch.arange(len(text) - 1, len(text) - 1 + fed.shape[1])[None]
        mask = row(seen + [1] * fed.shape[1])
        out = model(fed, cache=cache, attention_mask=mask, position_ids=positions, use_cache=True)
        best = out.logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        seen += [1] * (right + 1) + [0] * (len(guesses) - right)
        text += best[: right + 1]
    return row(text)


def takes_the_last_rows_choice(model, ids, n):
    """It takes the bonus token from the pass's last row (the plain loop's logits[:, -1]) instead of the row
    of the last right guess. A checker should say: the token written at this step was chosen by a row whose
    past had a wrong guess; the choice to take is the one in the row just before the first wrong guess."""
    text = ids[0].tolist()
    end = len(text) + n
    out = model(ids, use_cache=True)
    text.append(int(out.logits[0, -1].argmax()))
    while len(text) < end:
        guesses = latest(text, 4)[: end - len(text) - 1]
        best = model(row([text[-1], *guesses]), cache=out.cache).logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        text += [*guesses[:right], best[-1]]
        out.cache.crop(right - len(guesses))
    return row(text)


def accepts_the_second_best(model, ids, n):
    """It accepts a guess that is among the row's two best tokens. A checker should say: this guess was kept
    though another token had the highest score; the cache is consistent, but the text isn't greedy's."""
    text = ids[0].tolist()
    end = len(text) + n
    out = model(ids, use_cache=True)
    text.append(int(out.logits[0, -1].argmax()))
    while len(text) < end:
        guesses = latest(text, 4)[: end - len(text) - 1]
        two = model(row([text[-1], *guesses]), cache=out.cache).logits[0].topk(2).indices.tolist()
        right = 0
        while right < len(guesses) and guesses[right] in two[right]:
            right += 1
        text += [*guesses[:right], two[right][0]]
        out.cache.crop(right - len(guesses))
    return row(text)


def crops_all_guesses(model, ids, n):
    """When any guess is wrong it crops all of them, the right ones too, but goes on with the bonus token.
    A checker should say: this token was fed at position q, but it's the text's token p: the accepted guesses
    before it are missing from the cache; crop only the wrong ones."""
    text = ids[0].tolist()
    end = len(text) + n
    out = model(ids, use_cache=True)
    text.append(int(out.logits[0, -1].argmax()))
    while len(text) < end:
        guesses = latest(text, 4)[: end - len(text) - 1]
        best = model(row([text[-1], *guesses]), cache=out.cache).logits[0].argmax(-1).tolist()
        right = leading(guesses, best)
        text += best[: right + 1]
        if right < len(guesses):
            out.cache.crop(-len(guesses))
    return row(text)


EXTRA_RIGHT = [two_drafts_in_a_batch, masks_instead_of_crop]
EXTRA_WRONG = [takes_the_last_rows_choice, accepts_the_second_best, crops_all_guesses]
