"""Name a mistake in a store by what it left in the tensors that attention saw.

One pass over the whole text, without a store, says what every layer should have seen. The steps of
a recording are held against it in the order the numbers flow: queries, then keys and values, then
outputs, layer by layer. Where the first of them differs, each mistake known here is tried: is that
what it would have left? What none of them explains has no name, only a place.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from .step import Step

SAME = 1e-4  # of its size: how far a key or value may be from the one it is taken for
SEEN = ("queries", "keys", "values", "outputs")  # what `record` must keep


@dataclass(frozen=True)
class Cause:
    """What is wrong, its name ("not recognised" if it has none), advice, and where it shows."""

    headline: str
    name: str
    advice: str
    step: int
    layer: int
    place: int | None = None


def first(run, whole: Step, gate: float, *, turn=None, earlier: int = 0) -> Cause | None:
    """The first thing in a recording that is not as in `whole`; None if all of it is.

    Args:
        run: steps that kept `SEEN`, in the order of the text.
        whole: one pass over that text, with no store, that kept the same.
        gate: largest gap allowed, over the largest number compared.
        turn: (x, places) -> x rotated, to tell for which place a key was rotated.
        earlier: tokens of the text that the store was emptied of before.
    """
    written = 0
    for step in run:
        for layer in step.layers:
            scene = _Scene(step, layer, written, whole, gate, turn, earlier)
            if written + step.fed <= whole.fed and (found := scene.cause()):
                return Cause(f"step {step.index}: {found[0]}", *found[1:3], step.index, layer,
                             *found[3:])  # fmt: skip
        written += step.fed
    return None


class _Scene:
    """One layer in one step: what it saw and what it should have seen, batch row 0.

    A cause is (headline, name, advice) and, where there is one, the place.
    """

    def __init__(self, step, layer, written, whole, gate, turn, earlier):
        self.step, self.layer, self.written, self.whole = step, layer, written, whole
        self.gate, self.turn, self.earlier = gate, turn, earlier
        self.end = written + step.fed  # columns there should be: all tokens so far
        self.held = step.before.get(layer, 0)
        self.places = torch.arange(self.end)
        if turn is None and self.held == written:  # the library's windows and slabs know theirs
            self.places = step.places(layer)
        self.query, self.keys, self.values, self.output = (step.kept[n][layer][0] for n in SEEN)
        rows = slice(written, self.end)
        right = {name: whole.kept[name][layer][0] for name in SEEN}
        self.right_query, self.right_output = right["queries"][:, rows], right["outputs"][:, rows]
        filled = self.places[self.places >= 0]
        self.right_keys, self.right_values = right["keys"][:, filled], right["values"][:, filled]

    def cause(self):
        if self.written == 0 < self.held:
            return self._stale()
        if self.query.shape[1] != self.step.fed:
            return self._rows()
        if self.held != self.written:
            return self._store()
        if self._differ(self.query, self.right_query):
            return self._query()
        if len(self.places) == self.keys.shape[1]:  # empty slots hold nothing
            self.keys, self.values = (x[:, self.places >= 0] for x in (self.keys, self.values))
        if self._differ(self.keys, self.right_keys) or self._differ(self.values, self.right_values):
            return self._columns()
        return self._differ(self.output, self.right_output) and self._output()

    def _differ(self, ours, right):
        if ours.shape != right.shape:
            return True
        return not (ours - right).abs().max() <= self.gate * right.abs().max()

    # -- rows ------------------------------------------------------------------------------------

    def _stale(self):
        return (
            f"the store held {self.held} tokens before the first was fed",
            "stale store",
            "It was emptied, and still held the text before: reset must empty every slot.",
        )

    def _rows(self):
        rows, fed = self.query.shape[1], self.step.fed
        text = self.whole.queries[self.layer][0][:, : self.end]
        if rows == self.end and not self._differ(self.query, text):
            return (
                f"{rows} rows were computed for {fed} fed",
                "store never read",
                "The result is right, and all of it was computed again: nothing came out of the "
                "store.",
            )
        return self._unknown(f"{rows} rows were computed for {fed} fed")

    def _store(self):
        """It holds too few columns or too many: the places after it follow from that."""
        if not self.held:
            return self._missing(list(range(self.written)))
        self.keys, self.values = (x[:, : self.held] for x in (self.keys, self.values))
        right = self.right_keys, self.right_values
        self.right_keys, self.right_values = (x[:, : self.written] for x in right)
        self.places = self.places[: self.written]
        return self._columns()

    def _query(self):
        given = self._turned_for(self.query, self.right_query, range(self.written, self.end))
        if given is None:
            return self._unknown("the queries differ, and what came before them is right")
        true = list(range(self.written, self.end))
        i = next(i for i in range(len(true)) if given[i] != true[i])
        found = f"the token at place {true[i]} was rotated as if it stood at place {given[i]}"
        shifts = {ours - right for ours, right in zip(given, true, strict=True)}
        if given == list(range(len(given))):
            name = "position restarts"
            advice = "That is its offset in this call. Its place counts on from the tokens held."
        elif shifts == {1} and self.written:
            name = "position counted twice"
            advice = "It was counted as held and as new. A row's place is what was held before it."
        elif self.earlier and shifts == {self.earlier} and not self.written:
            name = "counter left behind"
            advice = (
                f"The store was emptied and a counter still says {self.earlier}. Rotary logits do "
                "not mind, until the places run out; learned positions would. Read the place from "
                "the store's tensors."
            )
        else:
            name, advice = "position miscounted", "A row's place is what was held before it."
        return found, name, advice, true[i]

    def _turned_for(self, ours, right, places):
        """For which place each column was rotated; None if for some of them no place fits."""
        if self.turn is None or ours.shape != right.shape:
            return None
        candidates, given = torch.arange(2 * self.end + self.earlier + 2), []
        for i, place in enumerate(places):
            plain = self.turn(right[None, :, i : i + 1], torch.tensor([-place]))
            every = self.turn(plain.expand(-1, -1, len(candidates), -1), candidates)[0]
            near = _near(ours[:, i : i + 1], every)[0]
            order = near.nonzero()[:, 0].tolist()
            if not order:
                return None
            given.append(place if place in order else order[0])
        return given

    # -- columns ---------------------------------------------------------------------------------

    def _columns(self):
        self.near_keys = _near(self.keys, self.right_keys)
        self.near_values = _near(self.values, self.right_values)
        keys_of = _found(self.near_keys, range(self.keys.shape[1]))
        values_of = _found(self.near_values, [i if k < 0 else k for i, k in enumerate(keys_of)])
        guesses = self._swapped(), self._misplaced(keys_of, values_of), self._rotated(values_of)
        guesses += self._another_layers(), self._rounded()
        known = next((guess for guess in guesses if guess), None)
        if known:
            return known
        count = f"{self.keys.shape[1]} columns, and {self.right_keys.shape[1]} were expected"
        if self.keys.shape[1] != self.right_keys.shape[1]:
            return self._unknown(f"attention saw {count}")
        which, of = ("keys", keys_of) if self._differ(self.keys, self.right_keys) else ("values", values_of)  # noqa: E501 # fmt: skip
        place = next((i for i, found in enumerate(of) if found != i), None)
        return self._unknown(f"the {which} that attention saw differ", place)

    def _swapped(self):
        n = self.written
        if not n or self.keys.shape != self.right_values.shape:
            return None
        if (_near(self.keys, self.right_values).diagonal()[:n].all()
                and _near(self.values, self.right_keys).diagonal()[:n].all()):  # fmt: skip
            return (
                "values came out of the store as keys, and keys as values",
                "keys and values swapped",
                "Compare the order in which the pair is written with the order it is read in.",
            )

    def _misplaced(self, keys_of, values_of):
        """Every column is one of the right ones, and not where it should be."""
        if min(keys_of) < 0 or min(values_of) < 0:
            return None
        n, fed = self.right_keys.shape[1], list(range(self.written, self.end))
        places = [int(self.places[self.places >= 0][k]) for k in keys_of]
        missing = sorted(set(self.places[self.places >= 0].tolist()) - set(places))
        twice = sorted({place for place in places if places.count(place) > 1})
        if keys_of != values_of:
            i = next(i for i, k in enumerate(keys_of) if k != values_of[i])
            return (
                f"column {i} has the key of place {keys_of[i]} and the value of place "
                f"{values_of[i]}",
                "keys apart from their values",
                "Keys and values were not appended on the same side. No key finds its own value.",
                i,
            )
        if missing == fed:
            return (
                f"the keys and values of {_these(fed)}, just fed, were not among those looked at",
                *self._not_appended(),
                fed[0],
            )
        if missing and not twice:
            return self._missing(missing)
        if twice and not missing:
            return (
                f"the store held {_these(twice)} more than once: {len(places)} columns, and {n} "
                "were expected",
                "written twice",
                "Attention hands back past and new together: `update` replaces, it never adds.",
                twice[0],
            )
        if twice:
            return (
                f"the store held {_these(twice)} more than once, and {_these(missing)} not at all",
                "write in the wrong place",
                "One write went over another. A new token goes behind all that are held.",
                missing[0],
            )
        return (
            f"every key is beside its own value, and they stand in the order {_short(places)}",
            "wrong order",
            "One query does not mind: a key carries its place, and a sum has no order. A chunk of "
            "several queries does, for its mask counts columns.",
            next(i for i, place in enumerate(places) if place != i),
        )

    def _not_appended(self):
        """Left out of the store, or only of the look at it? The step after tells."""
        later = self.step.run[self.step.index + 1 :]
        if later and later[0].kept["keys"][self.layer].shape[2] <= self.keys.shape[1]:
            advice = "The step after does not have it either: the longer pair was dropped."
            return "new token not appended", advice
        return "own key left out", "It attended before it was appended. A token sees itself too."

    def _missing(self, missing):
        held = f"{_these(missing)} of {self.written} fed before"
        if missing == list(range(self.written)):
            return (
                f"nothing came out of the store, and {self.written} tokens had been fed",
                "write never happens",
                "Look at `update`: what attention hands back must be in the slot at the next call.",
                0,
            )
        if missing == list(range(len(missing))):
            return (
                f"the store had let go of {held}",
                "window nobody asked for",
                "The oldest were dropped. Every token is needed for as long as the text goes on.",
                0,
            )
        return (
            f"the store did not hold {held}",
            "write missing",
            "Something was not written, or was taken out again.",
            missing[0],
        )

    def _rotated(self, values_of):
        """The values are right, and keys were rotated for another place."""
        if self.turn is None or values_of != list(range(self.right_keys.shape[1])):
            return None
        off = (~self.near_keys.diagonal()).nonzero()[:, 0].tolist()
        given = off and self._turned_for(self.keys[:, off], self.right_keys[:, off], off)
        if not given:
            return None
        found = f"the key of place {off[0]} was rotated as if it stood at place {given[0]}"
        if not any(given):
            return (
                found,
                "key at place 0",
                "A key rotated for place 0 is a key not rotated at all: rotate it by its true "
                "place before it is stored.",
                off[0],
            )
        if given == [2 * place for place in off] and off[-1] < self.written:
            return (
                f"{found}, twice as far",
                "keys rotated twice",
                "It was stored rotated, and rotated again when it was read.",
                off[0],
            )
        return found, "position miscounted", "A key's place is what was held before it.", off[0]

    def _another_layers(self):
        n = self.written
        for other in self.whole.layers if n and self.keys.shape[1] == self.end else ():
            theirs = self.whole.kept["keys"][other][0]
            if other != self.layer and theirs.shape[::2] == self.keys.shape[::2]:
                if _near(self.keys[:, :n], theirs[:, :n]).diagonal().all():
                    return (
                        f"layer {self.layer} was given what layer {other} had stored",
                        "one slot for all layers",
                        "Keys differ from layer to layer: each layer has a slot of its own.",
                        0,
                    )

    def _rounded(self):
        """What was held is close to right, and uses fewer bits than it was given."""
        n = self.written
        if not n or self.keys.shape[1] != self.end:
            return None
        for ours, right in ((self.keys, self.right_keys), (self.values, self.right_values)):
            ours, right = ours[:, :n], right[:, :n]
            close = (ours - right).norm() <= 0.2 * right.norm()
            if self._differ(ours, right) and close and (kept := _coarse(ours)):
                gap = float((ours - right).abs().max() / right.abs().max())
                return (
                    f"what was held came back {kept}, up to {gap:.0e} of the largest off",
                    "precision",
                    "It was kept with fewer bits than it was computed with. That may be a bargain, "
                    "and it is no longer the same cache.",
                    0,
                )

    # -- outputs -----------------------------------------------------------------------------------

    def _output(self):
        """Queries, keys and values are right: what could each row see, to give this?"""
        rows = torch.arange(self.written, self.end)[:, None]
        columns = self.places[self.places >= 0][None]
        causal = columns <= rows
        if not self._gives(causal, self.right_output):
            return self._unknown("attention gives another output")  # sinks and the like
        at = int(rows[0]) if len(rows) == 1 else None
        one = "the row" if len(rows) == 1 else "the rows"
        if self._gives(columns >= 0):
            return ("the rows could see what comes after them", "prefill without a mask",
                    "Several rows at once need the triangle: a row sees its own place and those "
                    "before.", at)  # fmt: skip
        if self._gives(columns <= rows - self.written):
            return (f"{one} saw from the first column on, as in a square", "mask from the top left",
                    "The triangle belongs at the bottom right: with a past, the first new row sees "
                    "all that is held and itself.", at)  # fmt: skip
        if self._gives((columns < self.written).expand_as(causal)) or self._gives(columns < rows):
            return (f"{one} saw what was held, and not the token just fed", "own key left out",
                    "It attended before it was appended. A token sees itself too.", at)  # fmt: skip
        for width in range(1, self.end):
            if self._gives(causal & (columns > rows - width)):
                return (f"each row saw the last {width} column{'s' * (width > 1)} only",
                        "window nobody asked for",
                        "Nothing is taken from the store, and the mask hides it. Every token is "
                        "needed.", at)  # fmt: skip
        return self._unknown("queries, keys and values are right, and the output differs", at)

    def _gives(self, visible, output=None):
        """Whether attention with this mask gives this output, to rounding."""
        if not visible.any(-1).all():
            visible = visible | ~visible.any(-1, keepdim=True)
        shared_by = self.query.shape[0] // self.keys.shape[0]
        keys, values = (x.repeat_interleave(shared_by, 0) for x in (self.keys, self.values))
        scores = self.query @ keys.transpose(1, 2) * self.query.shape[-1] ** -0.5
        blend = scores.masked_fill(~visible, -torch.inf).softmax(-1) @ values
        output = self.output if output is None else output
        if blend.shape != output.shape:
            return False
        return bool((blend - output).abs().max() <= SAME * output.abs().max())

    def _unknown(self, found, place=None):
        return (
            f"{found} (layer {self.layer}), and this check knows no mistake that leaves that",
            "not recognised",
            "All that comes before it is right: compare that layer with the plain one.",
            place,
        )


def _near(ours, right):
    """(C, N) bool: which of `right`'s columns each of ours is; both (heads, columns, D)."""
    if ours.shape[0] != right.shape[0] or ours.shape[2] != right.shape[2]:
        return torch.zeros(ours.shape[1], right.shape[1], dtype=torch.bool)
    a, b = (x.double().transpose(0, 1).flatten(1) for x in (ours, right))
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") <= SAME * b.norm(dim=1)


def _found(near, preferred):
    """The column each is: the preferred where that fits too, for tokens repeat; -1 for none."""
    rows = [row.nonzero()[:, 0].tolist() for row in near]
    return [p if p in row else row[0] if row else -1 for row, p in zip(rows, preferred)]  # noqa: B905


def _coarse(x):
    """In words, if these numbers (heads, columns, D) are of a coarser kind than float32."""
    for name, kind in (("in bfloat16", torch.bfloat16), ("in float16", torch.float16)):
        if torch.equal(x.to(kind).to(x.dtype), x):
            return name
    for dims in ((2,), (0, 2), (1,), (0, 1, 2)):  # one scale a token and head, a token, a channel
        for levels in (127, 7):
            whole = x / x.abs().amax(dims, keepdim=True).clamp_min(1e-30) * levels
            low, high = x.amin(dims, keepdim=True), x.amax(dims, keepdim=True)
            other = (x - low) / (high - low).clamp_min(1e-30) * (2 * levels + 1)
            if any((steps - steps.round()).abs().max() < 0.01 for steps in (whole, other)):
                return f"in {levels.bit_length() + 1} bits"
    return None


def _these(places):
    if len(places) == 1:
        return f"place {places[0]}"
    if places == list(range(places[0], places[-1] + 1)):
        return f"places {places[0]} to {places[-1]}"
    return f"places {_short(places)}"


def _short(places):
    return ", ".join(map(str, places[:8])) + ", ..." * (len(places) > 8)
