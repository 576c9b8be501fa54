"""Loops that keep their cache from call to call: a right one, and ways to get it wrong."""

import torch


def count_common(held, new):
    pairs = enumerate(zip(held, new, strict=False))
    return next((i for i, (a, b) in pairs if a != b), min(len(held), len(new)))


class Chat:
    """Right: crops to the longest common prefix, and feeds the rest, at least one token."""

    feeds_last = False  # whether a turn's last token is fed too

    def __init__(self):
        self.cache, self.held = None, []

    def choose_start(self, new):
        return min(count_common(self.held, new), len(new) - 1)

    def crop(self, n):
        if len(self.held) > n:
            self.cache.crop(n - len(self.held))

    def choose_fed(self, ids, n):
        return ids[:, n:]

    def first_pass(self, model, ids, n):
        return model(self.choose_fed(ids, n), cache=self.cache, use_cache=True)

    def __call__(self, model, ids, n_new):
        n = self.choose_start(ids[0].tolist())
        self.crop(n)
        out = self.first_pass(model, ids, n)
        self.cache, text = out.cache, ids
        for step in range(n_new):
            newest = out.logits[:, -1:].argmax(-1)
            text = torch.cat([text, newest], dim=1)
            if step < n_new - 1 or self.feeds_last:
                out = model(newest, cache=self.cache)
        self.held = text[0, : self.cache.get_seq_length()].tolist()
        return text


class FeedsLast(Chat):
    feeds_last = True


class OneByOne(Chat):
    def first_pass(self, model, ids, n):
        for token in ids[:, n:].split(1, dim=1):
            out = model(token, cache=self.cache, use_cache=True)
            self.cache = out.cache
        return out


class KeepsHalf(Chat):
    """Right, and keeps less than it could."""

    def choose_start(self, new):
        return super().choose_start(new) // 2


class OneFewer(Chat):
    def choose_start(self, new):
        return max(0, super().choose_start(new) - 1)


# -- wrong ---------------------------------------------------------------------------------------


class StartsAgain(Chat):
    def choose_start(self, new):
        self.cache, self.held = None, []
        return 0


class ForgetsCache(Chat):
    """A new cache each call, and only the rest is fed."""

    def crop(self, n):
        self.cache = None


class NeverCrops(Chat):
    """Feeds what follows the first difference, on top of all that is held."""

    def crop(self, n):
        pass


class ByLength(Chat):
    """Takes the texts for the same as far as the shorter one goes."""

    def choose_start(self, new):
        return min(len(self.held), len(new) - 1)


class CropsOneTooFew(Chat):
    def crop(self, n):
        super().crop(min(len(self.held), n + 1))


class CropsOneTooMany(Chat):
    def crop(self, n):
        super().crop(max(0, n - 1))


class LeavesOutLast(Chat):
    def choose_fed(self, ids, n):
        return ids[:, n + 1 :] if n else ids


class FeedsMessage(Chat):
    """The message's words alone: the last four tokens."""

    def choose_fed(self, ids, n):
        return ids[:, -4:] if n else ids


class FeedsLastTwice(FeedsLast):
    def choose_fed(self, ids, n):
        return ids[:, max(0, n - 1) :]


class FeedsWhole(Chat):
    def choose_fed(self, ids, n):
        return ids


class FeedsOther(Chat):
    """The rest in another order."""

    def choose_fed(self, ids, n):
        return ids[:, n:].flip(1) if n else ids


class FromZero(Chat):
    def first_pass(self, model, ids, n):
        fed = self.choose_fed(ids, n)
        positions = torch.arange(fed.shape[1])[None]
        return model(fed, cache=self.cache, position_ids=positions, use_cache=True)


class FeedsNothing(Chat):
    """Doesn't feed a token again where the cache holds all of the text."""

    def choose_start(self, new):
        return count_common(self.held, new)


class FeedsLastOnTop(FeedsNothing):
    """Feeds the text's last token again where all is held, and doesn't crop it first."""

    def choose_fed(self, ids, n):
        return ids[:, min(n, ids.shape[1] - 1) :]
