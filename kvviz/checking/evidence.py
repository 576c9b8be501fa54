"""One layer in one step: what it saw, what it should have seen, and which mistake lies between.

A mistake is (name, what is wrong in words, place or None); the names are those of `naming.ADVICE`.
C columns, E columns expected, D head width; all of batch row 0.
"""

from __future__ import annotations

import torch

from kvviz.checking.compare import SAME, coarse, near, short, these, which

SEEN = ("queries", "keys", "values", "outputs")  # what `record` must keep
UNKNOWN = "not recognised"


class Scene:
    """`written` tokens were fed before `step`; `whole` is one pass over all, without a store.

    `gate`, `turn` and `earlier` as in `naming.first`.
    """

    def __init__(self, step, layer, written, whole, gate, turn, earlier):
        self.step, self.layer, self.written, self.whole = step, layer, written, whole
        self.gate, self.turn, self.earlier = gate, turn, earlier
        self.end = written + step.fed
        self.held = step.before.get(layer, step.held_before if turn is None else 0)
        self.places = torch.arange(self.end)
        if turn is None and self.held == written:  # the library's windows and slabs know theirs
            self.places = step.column_positions(layer)
        self.query, self.keys, self.values, self.output = (step.kept[n][layer][0] for n in SEEN)
        if len(self.places) == self.keys.shape[1]:  # an empty slot holds nothing
            self.keys, self.values = (x[:, self.places >= 0] for x in (self.keys, self.values))
        self.places = self.places[self.places >= 0]
        query, keys, values, output = (whole.kept[n][layer][0] for n in SEEN)
        self.right_query, self.right_output = (x[:, written : self.end] for x in (query, output))
        self.right_keys, self.right_values = keys[:, self.places], values[:, self.places]

    def mistake(self):
        """The first thing that is wrong here, given that all before it was right; or None."""
        if self.written == 0 < self.held:
            says = f"the store held {self.held} tokens before the first was fed"
            return "stale store", says, None
        if self.query.shape[1] != self.step.fed:
            return self._rows()
        if self.held != self.written:
            return self._store()
        if self._differ(self.query, self.right_query):
            return self._query()
        if self._differ(self.keys, self.right_keys) or self._differ(self.values, self.right_values):
            return self._columns()
        return self._output() if self._differ(self.output, self.right_output) else None

    def _differ(self, ours, right):
        if ours.shape != right.shape:
            return True
        return not (ours - right).abs().max() <= self.gate * right.abs().max()

    def _rows(self):
        n = self.query.shape[1]
        says = f"{n} row{'s were' if n > 1 else ' was'} computed for {self.step.fed} fed"
        text = self.whole.queries[self.layer][0][:, : self.end]
        return (UNKNOWN if self._differ(self.query, text) else "store never read"), says, None

    # -- places ----------------------------------------------------------------------------------

    def _query(self):
        true = list(range(self.written, self.end))
        given = self._turned_for(self.query, self.right_query, true)
        if given is None:
            off = (self.query - self.right_query).abs().amax((0, 2)) / self.right_query.abs().max()
            place = self.written + int((~(off <= self.gate)).nonzero()[0])
            return UNKNOWN, "the queries differ", place
        i = next(i for i in range(len(true)) if given[i] != true[i])
        says = f"the token at place {true[i]} was rotated as if it stood at place {given[i]}"
        shifts = {ours - right for ours, right in zip(given, true, strict=True)}
        name = "position miscounted"
        if given == list(range(len(given))):
            name = "position restarts"
        elif shifts == {1} and self.written:
            name = "position counted twice"
        elif shifts == {self.earlier} and not self.written:
            name = "counter left behind"
        return name, says, true[i]

    def _rotated(self, values_of):
        """The values are right, and keys were rotated for another place."""
        off = (~near(self.keys, self.right_keys).diagonal()).nonzero()[:, 0].tolist()
        if not off or values_of != list(range(self.right_keys.shape[1])):
            return None
        given = self._turned_for(self.keys[:, off], self.right_keys[:, off], off)
        if given is None:
            return None
        says = f"the key of place {off[0]} was rotated as if it stood at place {given[0]}"
        name = "keys rotated twice" if off[-1] < self.written else "position miscounted"
        return name if any(given) else "key at place 0", says, off[0]

    def _turned_for(self, ours, right, places):
        """For which place each column was rotated; None if for some of them no place fits."""
        if self.turn is None or ours.shape != right.shape:
            return None
        candidates, given = torch.arange(-self.end, 2 * self.end + self.earlier + 2), []
        for i, place in enumerate(places):
            plain = self.turn(right[None, :, i : i + 1], torch.tensor([-place]))
            every = self.turn(plain.expand(-1, -1, len(candidates), -1), candidates)[0]
            fit = candidates[near(ours[:, i : i + 1], every)[0]].tolist()
            if not fit:
                return None
            given.append(place if place in fit else fit[0])
        return given

    # -- columns ---------------------------------------------------------------------------------

    def _store(self):
        """It holds too few columns or too many: the places of what is new follow from that."""
        if not self.held:
            return self._missing(list(range(self.written)))
        self.keys, self.values = (x[:, : self.held] for x in (self.keys, self.values))
        right = self.right_keys, self.right_values, self.places[None]
        self.right_keys, self.right_values, (self.places,) = (x[:, : self.written] for x in right)
        return self._columns()

    def _columns(self):
        keys_of = which(near(self.keys, self.right_keys), range(self.keys.shape[1]))
        preferred = [i if k < 0 else k for i, k in enumerate(keys_of)]
        values_of = which(near(self.values, self.right_values), preferred)
        found = self._swapped() or self._misplaced(keys_of, values_of) or self._rotated(values_of)
        found = found or self._another_layers() or self._rounded()
        if found:
            return found
        n, expected = self.keys.shape[1], self.right_keys.shape[1]
        if n != expected:
            who = "attention saw" if self.held == self.written else "the store held"
            return UNKNOWN, f"{who} {n} columns, and {expected} were expected", None
        keys_differ = self._differ(self.keys, self.right_keys)
        name, of = ("key", keys_of) if keys_differ else ("value", values_of)
        place = int(self.places[next((i for i, found in enumerate(of) if found != i), 0)])
        return UNKNOWN, f"the {name} of place {place} differs as attention saw it", place

    def _swapped(self):
        n = self.written
        swapped = n and self.keys.shape == self.right_values.shape
        pairs = (self.keys, self.right_values), (self.values, self.right_keys)
        if swapped and all(near(*pair).diagonal()[:n].all() for pair in pairs):
            says = "values came out of the store as keys, and keys as values"
            return "keys and values swapped", says, None

    def _misplaced(self, keys_of, values_of):
        """Every column is one of the right ones, and not where it should be."""
        if min(keys_of) < 0 or min(values_of) < 0:
            return None
        places, expected = self.places[keys_of].tolist(), self.places.tolist()
        missing = sorted(set(expected) - set(places))
        twice = sorted({place for place in places if places.count(place) > 1})
        if keys_of != values_of:
            i = next(i for i, k in enumerate(keys_of) if k != values_of[i])
            says = f"the key of place {keys_of[i]} and the value of place {values_of[i]}"
            return "keys apart from their values", f"column {i} has {says}", i
        if missing == list(range(self.written, self.end)):
            says = f"the keys and values of {these(missing)}, just fed, were not looked at"
            return self._not_appended(), says, missing[0]
        if missing and not twice:
            return self._missing(missing)
        if missing:
            says = f"the store held {these(twice)} more than once, and {these(missing)} not at all"
            return "write in the wrong place", says, missing[0]
        if twice:
            says = f"the store held {these(twice)} more than once"
            says += f": {len(places)} columns, and {len(expected)} were expected"
            return "written twice", says, twice[0]
        says = f"every key is beside its own value, and they stand in the order {short(places)}"
        return (
            "wrong order",
            says,
            next(i for i, place in enumerate(places) if place != expected[i]),
        )

    def _not_appended(self):
        """Left out of the store, or only of the look at it? The step after tells."""
        later = self.step.run[self.step.index + 1 :]
        same = later and later[0].kept["keys"][self.layer].shape[2] <= self.keys.shape[1]
        return "new token not appended" if same else "own key left out"

    def _missing(self, missing):
        says = f"the store did not hold {these(missing)} of {self.written} fed before"
        if missing != list(range(len(missing))):
            return "write missing", says, missing[0]
        if len(missing) < self.written:
            return "window nobody asked for", says, 0
        later = self.step.run[self.step.index :]
        never = not any(step.before.get(self.layer) for step in later)
        return "write never happens" if never else "write missing", says, 0

    def _another_layers(self):
        n = self.written
        if not n or self.keys.shape[1] != self.end:
            return None

        def are(layer, other):  # what `layer` was given is what `other` should have stored
            ours, theirs = self.step.kept["keys"][layer][0], self.whole.kept["keys"][other][0]
            return bool(near(ours[:, :n], theirs[:, :n]).diagonal().all())

        for other in self.whole.layers:
            if other != self.layer and are(self.layer, other):
                every = all(are(layer, other) for layer in self.step.layers)
                says = f"layer {self.layer} was given what layer {other} had stored"
                return "one slot for all layers" if every else "another layer's slot", says, None

    def _rounded(self):
        """What was held is close to right, and uses fewer bits than it was given."""
        n = self.written
        if not n or self.keys.shape[1] != self.end:
            return None
        for ours, right in ((self.keys, self.right_keys), (self.values, self.right_values)):
            ours, right = ours[:, :n], right[:, :n]
            close = (ours - right).norm() <= 0.2 * right.norm()
            if self._differ(ours, right) and close and (kept := coarse(ours)):
                gap = float((ours - right).abs().max() / right.abs().max())
                says = f"what was held came back {kept}, up to {gap:.0e} of the largest off"
                return "precision", says, None

    # -- outputs ---------------------------------------------------------------------------------

    def _output(self):
        """Queries, keys and values are right: what could each row see, to give this?"""
        rows, columns = torch.arange(self.written, self.end)[:, None], self.places[None]
        causal, one = columns <= rows, len(rows) == 1
        says, at = "the row" if one else "the rows", self.written if one else None
        nameless = UNKNOWN, "queries, keys and values are right, and the output differs", at
        if not self._gives(causal, self.right_output):
            return nameless  # sinks and the like: no attention that could be tried here
        if self._gives(columns >= 0):
            return "mask missing", f"{says} could see what comes after them", at
        if self._gives(columns <= rows - self.written):
            return "mask from the top left", f"{says} saw from the first column on, as in a square", at  # noqa: E501 # fmt: skip
        if self._gives(columns < rows) or self._gives((columns < self.written).expand_as(causal)):
            return "own key left out", f"{says} saw what was held, and not the token just fed", at
        holes = [p for p in self.places.tolist() if self._gives(causal & (columns != p))]
        widths = [w for w in range(1, self.end) if self._gives(causal & (columns > rows - w))]
        if holes and not (widths and self._slides(widths[0])):
            return "mask with a hole", f"place {holes[0]} was masked, though it is held", holes[0]
        if widths:
            says += f" saw the last {widths[0]} column{'s' * (widths[0] > 1)} only"
            return "window nobody asked for", says, at
        return nameless

    def _slides(self, width):
        """Whether the step after saw as many columns: one cannot tell a window from a hole."""
        later = self.step.run[self.step.index + 1 :]
        if not later or self.end + later[0].fed > self.whole.fed:
            return True
        after = Scene(later[0], self.layer, self.end, self.whole, self.gate, self.turn, 0)
        ago = torch.arange(self.end, after.end)[:, None] - after.places[None]
        return after._gives((ago >= 0) & (ago < width))

    def _gives(self, visible, output=None):
        """Whether attention with this mask gives this output, to rounding."""
        output = self.output if output is None else output
        shared_by = self.query.shape[0] // self.keys.shape[0]
        keys, values = (x.repeat_interleave(shared_by, 0) for x in (self.keys, self.values))
        scores = self.query @ keys.transpose(1, 2) * self.query.shape[-1] ** -0.5
        blend = scores.masked_fill(~visible, -torch.inf).softmax(-1).nan_to_num() @ values
        if blend.shape != output.shape:
            return False
        return bool((blend - output).abs().max() <= SAME * output.abs().max())
