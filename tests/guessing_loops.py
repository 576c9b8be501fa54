"""Greedy loops that guess: several tokens are fed in one pass, and the wrong guesses are cropped.

`RIGHT` pass; `WRONG` must be given that name. Each differs from `Guessing` in what it overrides.
"""

import copy
from functools import cache

import torch
from transformers import DynamicCache, StaticCache


class Guessing:
    """The right loop. A guess is accepted if it's the choice of the row before its own."""

    k = 3

    def __init__(self, guess=None):
        self.guess = guess or guess_from_the_text

    @torch.no_grad()
    def __call__(self, model, ids, n):
        self.n_prompt, self.position = ids.shape[1], ids.shape[1]
        kept, text = self.fill(model, ids)
        while (left := ids.shape[1] + n - text.shape[1]) > 0:
            guesses = self.guess(model, text, self.limit(left))
            fed = self.feed(text, guesses)
            best = self.call(model, fed, kept).logits.argmax(-1)
            n_right = self.count(fed, best)
            text, before = self.extend(text, fed, best, n_right), text
            kept = self.roll_back(kept, fed.shape[1] - 1 - n_right, n_right) or kept
            self.finish(model, kept, text, before)
        return self.give(text, ids.shape[1] + n)

    def fill(self, model, ids):
        kept = self.new_cache(model)
        return kept, torch.cat([ids, model(ids, cache=kept).logits[:, -1:].argmax(-1)], dim=1)

    def new_cache(self, model):
        return DynamicCache(config=model.config)

    def limit(self, left):
        return min(self.k, left - 1)

    def feed(self, text, guesses):
        return torch.cat([text[:, -1:], guesses], dim=1)

    def call(self, model, fed, kept):
        return model(fed, cache=kept)

    def count(self, fed, best):
        return int((best[:, :-1] == fed[:, 1:]).long().cumprod(1).sum())

    def extend(self, text, fed, best, n_right):
        return torch.cat([text, best[:, : n_right + 1]], dim=1)

    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-n_wrong)

    def finish(self, model, kept, text, before):
        """After each pass; nothing in the right loop."""

    def give(self, text, length):
        return text


# -- where guesses come from -----------------------------------------------------------------------


def guess_from_the_text(model, text, k):
    """The tokens that followed the newest one when it last stood in the text."""
    *earlier, newest = text[0].tolist()
    at = max((i for i, token in enumerate(earlier) if token == newest), default=0)
    return text[:, at + 1 : at + 1 + k]


@cache
def draft_of(model, noise=0.015):
    """A second model that often, but not always, agrees with the first."""
    draft, drawn = copy.deepcopy(model), torch.Generator().manual_seed(1)
    for weight in draft.parameters():
        if weight.ndim > 1:
            weight.data.add_(torch.randn(weight.shape, generator=drawn) * noise)
    return draft


def guess_with(draft):
    """The greedy tokens of a second model, each computed once."""

    def guess(model, text, k):
        tokens = tuple(text[0].tolist())
        for _ in range(k):
            tokens += (choose_next(draft, tokens),)
        return torch.tensor([tokens[text.shape[1] :]], dtype=torch.long)

    return guess


@cache
def choose_next(draft, tokens):
    return int(draft(torch.tensor([tokens]), use_cache=False).logits[0, -1].argmax())


def guess_the_same(model, text, k):
    return torch.full((1, k), 7)


def guess_from(known):
    """The right continuation of one text, by look-up; of any other, what stands in the text."""

    def guess(model, text, k):
        n = text.shape[1]
        if torch.equal(text, known[:, :n]):
            return known[:, n : n + k]
        return guess_from_the_text(model, text, k)

    return guess


# -- right -----------------------------------------------------------------------------------------


class VaryingK(Guessing):
    def limit(self, left):
        self.k = self.k % 5 + 1
        return super().limit(left)


class DoublingK(Guessing):
    """On a copy, and with more guesses wherever all were right."""

    k = 1

    def call(self, model, fed, kept):
        self.fed = fed
        return model(fed, cache=copy.deepcopy(kept))

    def roll_back(self, kept, n_wrong, n_right):
        self.k = 2 * self.k if n_wrong == 0 else 1

    def finish(self, model, kept, text, before):
        model(self.fed[:, : text.shape[1] - before.shape[1]], cache=kept)


class OldCacheWhereWrong(Guessing):
    """Guesses go into a copy, which is kept if all are right; else the old cache is fed again."""

    def call(self, model, fed, kept):
        self.model, self.fed, self.copy = model, fed, copy.deepcopy(kept)
        return model(fed, cache=self.copy)

    def roll_back(self, kept, n_wrong, n_right):
        if n_wrong == 0:
            return self.copy
        self.model(self.fed[:, : n_right + 1], cache=kept)


class SlicedIntoANewCache(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        end, new = kept.get_seq_length() - n_wrong, DynamicCache()
        for number, layer in enumerate(kept.layers):
            new.update(layer.keys[:, :, :end], layer.values[:, :, :end], number)
        return new


class OneTooManyFedAgain(Guessing):
    """Right, and wasteful: the last accepted token is taken out too, and fed again."""

    again = 0

    def feed(self, text, guesses):
        self.again = int(text.shape[1] > self.n_prompt + 1)
        return torch.cat([text[:, -1 - self.again :], guesses], dim=1)

    def count(self, fed, best):
        return super().count(fed[:, self.again :], best[:, self.again :])

    def extend(self, text, fed, best, n_right):
        self.n_wrong = fed.shape[1] - 1 - self.again - n_right
        return super().extend(text, fed, best[:, self.again :], n_right)

    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-(self.n_wrong + 1))


class PastTheEnd(Guessing):
    """The last pass guesses further than the text goes, which is then cut."""

    def limit(self, left):
        return self.k

    def give(self, text, length):
        return text[:, :length]


class TwoBranches(Guessing):
    """Two drafts, one pass each; then what was accepted of the first is fed."""

    def call(self, model, fed, kept):
        self.fed, other = fed, fed.clone()
        other[:, 1:2] = (other[:, 1:2] + 1) % 90
        for branch in (other, fed):
            out = model(branch, cache=kept)
            kept.crop(-fed.shape[1])
        return out

    def roll_back(self, kept, n_wrong, n_right):
        pass

    def finish(self, model, kept, text, before):
        model(self.fed[:, : text.shape[1] - before.shape[1]], cache=kept)


class GuessesBehindThePrompt(Guessing):
    def fill(self, model, ids):
        kept, guesses = self.new_cache(model), self.guess(model, ids, self.k)
        best = model(torch.cat([ids, guesses], dim=1), cache=kept).logits.argmax(-1)
        best = best[:, ids.shape[1] - 1 :]
        n_right = int((best[:, :-1] == guesses).long().cumprod(1).sum())
        kept.crop(n_right - guesses.shape[1])
        return kept, torch.cat([ids, best[:, : n_right + 1]], dim=1)

    def give(self, text, length):
        return text[:, :length]


class InAStaticCache(Guessing):
    def new_cache(self, model):
        return StaticCache(model.config, max_cache_len=90)


class PositionsByHand(Guessing):
    def call(self, model, fed, kept):
        positions = self.position + torch.arange(fed.shape[1])[None]
        self.position += fed.shape[1]
        return model(fed, position_ids=positions, cache=kept)

    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-n_wrong)
        self.position -= self.uncount(n_wrong, n_right)

    def uncount(self, n_wrong, n_right):
        return n_wrong


class LastRightOneRejected(Guessing):
    """Right, and wasteful: the last guess that is right is taken for wrong."""

    def count(self, fed, best):
        return max(0, super().count(fed, best) - 1)


class PastRecorded(Guessing):
    """A window forgets nothing until it is cropped."""

    def new_cache(self, model):
        kept = super().new_cache(model)
        for layer in kept.layers:
            if hasattr(layer, "activate_past_recording"):
                layer.activate_past_recording()
        return kept


RIGHT = [Guessing, VaryingK, DoublingK, OldCacheWhereWrong, SlicedIntoANewCache]
RIGHT += [OneTooManyFedAgain, PastTheEnd, TwoBranches, GuessesBehindThePrompt, InAStaticCache]
RIGHT += [PositionsByHand, LastRightOneRejected, PastRecorded]

# -- wrong -----------------------------------------------------------------------------------------


class NoCrop(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        pass


class CopyKept(NoCrop):
    """The copy with the guesses takes the place of the cache."""

    def call(self, model, fed, kept):
        self.copy = copy.deepcopy(kept)
        return model(fed, cache=self.copy)

    def roll_back(self, kept, n_wrong, n_right):
        return self.copy


class OneStays(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-max(0, n_wrong - 1))


class OneAtMostLeaves(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-min(1, n_wrong))


class SlicedToTheText(Guessing):
    """The text is one token longer than what the cache should hold."""

    longer = 0

    def finish(self, model, kept, text, before):
        end = text.shape[1] + self.longer
        for layer in kept.layers:
            layer.keys, layer.values = layer.keys[:, :, :end], layer.values[:, :, :end]

    def roll_back(self, kept, n_wrong, n_right):
        pass


class SlicedTooShort(SlicedToTheText):
    longer = -2


class CroppedInTheNextPass(Guessing):
    n_due = 0

    def call(self, model, fed, kept):
        out = model(fed, cache=kept)
        kept.crop(-self.n_due)
        return out

    def roll_back(self, kept, n_wrong, n_right):
        self.n_due = n_wrong


class AllRightOnesCounted(Guessing):
    """Also those after the first that is wrong."""

    def count(self, fed, best):
        return int((best[:, :-1] == fed[:, 1:]).long().sum())


class OneTooMany(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-(n_wrong + 1))


class AllGuessesCropped(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-(n_wrong + n_right))


class CroppedTwice(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-n_wrong)
        kept.crop(-n_wrong)


class OldCachePassedOn(NoCrop):
    """Guesses go into a copy, and what was accepted is never fed to the cache itself."""

    def call(self, model, fed, kept):
        return model(fed, cache=copy.deepcopy(kept))


class PositionsGoOn(PositionsByHand):
    def uncount(self, n_wrong, n_right):
        return 0


class PositionsOneAhead(PositionsByHand):
    def uncount(self, n_wrong, n_right):
        return max(0, n_wrong - 1)


class PositionsOneBehind(PositionsByHand):
    def uncount(self, n_wrong, n_right):
        return n_wrong + 1 if n_wrong else 0


class OnePositionAPass(PositionsByHand):
    def uncount(self, n_wrong, n_right):
        return n_wrong + n_right


class OnePositionForAll(PositionsByHand):
    def uncount(self, n_wrong, n_right):
        return n_wrong + n_right + 1


class BonusNotReturned(Guessing):
    """What is fed is right; the text that is returned lacks the token after accepted guesses."""

    def fill(self, model, ids):
        kept, text = super().fill(model, ids)
        self.collected = text
        return kept, text

    def extend(self, text, fed, best, n_right):
        self.collected = torch.cat([self.collected, best[:, : max(1, n_right)]], dim=1)
        return super().extend(text, fed, best, n_right)

    def give(self, text, length):
        return self.collected[:, :length]


class BonusReturnedTwice(BonusNotReturned):
    def extend(self, text, fed, best, n_right):
        twice = best[:, [*range(n_right + 1), n_right]]
        self.collected = torch.cat([self.collected, twice], dim=1)
        return Guessing.extend(self, text, fed, best, n_right)


class BonusNotFed(Guessing):
    """Neither returned nor fed: the last accepted guess is fed again."""

    def extend(self, text, fed, best, n_right):
        return torch.cat([text, best[:, : max(1, n_right)]], dim=1)


class TextNeverGrows(Guessing):
    """The same, and no token at all where no guess is accepted."""

    def extend(self, text, fed, best, n_right):
        return torch.cat([text, best[:, :n_right]], dim=1)


class GuessesFedAlone(Guessing):
    def feed(self, text, guesses):
        return guesses if guesses.shape[1] else text[:, -1:]


class BonusFedAlone(Guessing):
    """And then again, in front of the guesses."""

    def finish(self, model, kept, text, before):
        model(text[:, -1:], cache=kept)


class NewestTwiceInAPass(Guessing):
    def feed(self, text, guesses):
        return torch.cat([text[:, -1:], text[:, -1:], guesses], dim=1)

    def count(self, fed, best):
        return super().count(fed[:, 1:], best[:, 1:])

    def extend(self, text, fed, best, n_right):
        return super().extend(text, fed, best[:, 1:], n_right)

    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(1 - n_wrong)


class NothingCompared(Guessing):
    def count(self, fed, best):
        return fed.shape[1] - 1

    def extend(self, text, fed, best, n_right):
        return torch.cat([text, fed[:, 1:], best[:, -1:]], dim=1)


class GuessForTheBonus(Guessing):
    """The first wrong guess is returned where the model's own choice should be."""

    def extend(self, text, fed, best, n_right):
        every = torch.cat([fed[:, 1:], best[:, -1:]], dim=1)
        return torch.cat([text, every[:, : n_right + 1]], dim=1)


class OwnRowCompared(Guessing):
    def count(self, fed, best):
        return int((best[:, 1:] == fed[:, 1:]).long().cumprod(1).sum())


class BonusOfTheLastRow(Guessing):
    def extend(self, text, fed, best, n_right):
        return torch.cat([text, best[:, :n_right], best[:, -1:]], dim=1)


class BonusOfTheRowBefore(Guessing):
    def extend(self, text, fed, best, n_right):
        row = max(0, n_right - 1)
        return torch.cat([text, best[:, :n_right], best[:, row : row + 1]], dim=1)


class SecondBestBonus(Guessing):
    def call(self, model, fed, kept):
        self.out = model(fed, cache=kept)
        return self.out

    def extend(self, text, fed, best, n_right):
        second = self.out.logits[:, n_right : n_right + 1].topk(2).indices[..., 1]
        return torch.cat([text, best[:, :n_right], second], dim=1)


class AcceptedFedAgain(Guessing):
    """All the tokens of the pass before, in front of the next guesses."""

    n_again = 1

    def feed(self, text, guesses):
        self.n_fed = self.n_again
        return torch.cat([text[:, -self.n_again :], guesses], dim=1)

    def count(self, fed, best):
        return super().count(fed[:, self.n_fed - 1 :], best[:, self.n_fed - 1 :])

    def extend(self, text, fed, best, n_right):
        self.n_wrong, self.n_again = fed.shape[1] - self.n_fed - n_right, n_right + 1
        return super().extend(text, fed, best[:, self.n_fed - 1 :], n_right)

    def roll_back(self, kept, n_wrong, n_right):
        kept.crop(-self.n_wrong)


class CroppedInFront(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        for layer in kept.layers:
            layer.keys, layer.values = layer.keys[:, :, n_wrong:], layer.values[:, :, n_wrong:]


class ValuesCroppedInFront(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        for layer in kept.layers:
            end = layer.keys.shape[2] - n_wrong
            layer.keys, layer.values = layer.keys[:, :, :end], layer.values[:, :, n_wrong:]


class KeysCroppedAlone(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        for layer in kept.layers:
            layer.keys = layer.keys[:, :, : layer.keys.shape[2] - n_wrong]


class OneLayerCropped(Guessing):
    def roll_back(self, kept, n_wrong, n_right):
        layer = kept.layers[-1]
        end = layer.keys.shape[2] - n_wrong
        layer.keys, layer.values = layer.keys[:, :, :end], layer.values[:, :, :end]


WRONG = {
    NoCrop: ("wrong guess kept", "'64' was fed at position 11 as a guess, but '60' had the"),
    CopyKept: ("wrong guess kept", "and the guess was kept"),
    OneStays: ("cropped too few", "3 guesses turned out wrong, and only 2 of them left the cache"),
    OneAtMostLeaves: ("cropped too few", "and only 1 of them left the cache"),
    SlicedToTheText: ("cropped too few", "and only 2 of them left the cache"),
    CroppedInTheNextPass: ("cropped too few", "3 guesses turned out wrong, and all of them stayed"),
    AllRightOnesCounted: ("cropped too few", "and only 1 of them left the cache"),
    OneTooMany: ("cropped too many", "held 9, after 10 right tokens had been fed: 1 right token"),
    AllGuessesCropped: ("cropped too many", "3 right tokens were taken out, and not fed again"),
    SlicedTooShort: ("cropped too many", "1 right token was taken out, and not fed again"),
    CroppedTwice: ("cropped too many", "3 right tokens were taken out, and not fed again"),
    OldCachePassedOn: ("cache went back", "the cache held 6, after 10 tokens had been fed"),
    PositionsGoOn: ("positions not taken back", "which held 11 then, but the positions went on fr"),
    PositionsOneAhead: ("positions not taken back", "the positions went on from 12"),
    PositionsOneBehind: ("positions taken back too far", "the positions went on from 10"),
    OnePositionAPass: (
        "positions taken back too far",
        "held 10, all of them right, but the positi",
    ),
    OnePositionForAll: ("position not advanced", "is at position 13, but was given 9"),
    BonusNotReturned: ("bonus token missing", "'81', the model's own choice for position 10, is n"),
    BonusNotFed: ("bonus token missing", "was not fed: you fed '75' again, which was held already"),
    GuessesFedAlone: ("bonus token missing", "was not fed: you fed '13', which comes after it"),
    BonusReturnedTwice: ("bonus token written twice", "for position 10, is in your text twice"),
    BonusFedAlone: ("bonus token written twice", "was fed again, and the cache already held it"),
    NewestTwiceInAPass: (
        "bonus token written twice",
        "fed twice in one pass, at positions 6 and 7",
    ),
    NothingCompared: ("guesses accepted unchecked", "was accepted, as all the others were"),
    GuessForTheBonus: ("wrong guess accepted", "'64' was fed at position 11 as a guess, but '60'"),
    BonusOfTheLastRow: ("bonus token from the wrong row", "best of row 3, and the last accepted"),
    BonusOfTheRowBefore: ("bonus token from the wrong row", "best of row 2, and the last accepted"),
    SecondBestBonus: ("not greedy", "was chosen for position 10, but '81' had the highest score"),
    AcceptedFedAgain: ("token fed twice", "and the cache already held the first 3 of them"),
    CroppedInFront: ("not recognised", "step 3, layer 0: the key or the value of position 0 isn't"),
    ValuesCroppedInFront: ("not recognised", "the key or the value of position 0 isn't the right"),
    KeysCroppedAlone: ("raised", "RuntimeError"),
    OneLayerCropped: ("raised", "RuntimeError"),
}
