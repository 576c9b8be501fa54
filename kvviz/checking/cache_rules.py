"""Name a mistake in a cache by what attention saw in one layer of one step.

Each rule looks at the evidence and returns a cause or None. The table at the end says which are
tried, by what differs first.
"""

from __future__ import annotations

from kvviz.checking.causes import UNKNOWN, Cause, first_cause
from kvviz.checking.column_rules import COLUMN_RULES
from kvviz.checking.columns import match_columns
from kvviz.checking.compare import Reference
from kvviz.checking.evidence import LayerEvidence
from kvviz.checking.mask_rules import MASK_RULES
from kvviz.checking.page_rules import page_in_the_table_twice, page_table_off_by_one
from kvviz.checking.query_rules import QUERY_RULES
from kvviz.words import pluralize


def find_cause(
    run, reference: Reference, *, rotate=None, n_earlier: int = 0, others=None, sequence: int = 0
) -> Cause | None:
    """The first difference in a recording, with the mistake that would leave it; None if none.

    A difference far above rounding anywhere comes before a small one.

    Args:
        run: steps that kept `SEEN`, in the order of the text.
        rotate, n_earlier, others, sequence: as in `LayerEvidence`.
    """
    evidence = find_difference(run, reference, rotate, n_earlier, others, sequence)
    return evidence and first_cause(RULES[evidence.first_difference], evidence)


def find_difference(
    run, reference: Reference, rotate=None, n_earlier: int = 0, others=None, sequence: int = 0
) -> LayerEvidence | None:
    """The layer and step in which something differs first; arguments as in `find_cause`."""
    more = rotate, n_earlier, others, sequence
    for gate in (10 * reference.gate, reference.gate):
        for evidence in walk_layers(run, reference, gate, *more):
            if evidence.first_difference:
                return evidence
    return None


def walk_layers(run, reference, gate, rotate=None, n_earlier=0, others=None, sequence=0):
    """Every layer of every step, as long as the text is the right one."""
    fed_before, text = 0, reference.whole.token_ids[sequence]
    more = reference, gate, rotate, n_earlier, others, sequence
    for index, step in enumerate(run):
        right = text[fed_before : fed_before + step.fed]
        if step.token_ids[sequence].tolist() != right.tolist():
            return
        for layer in step.layers:
            yield LayerEvidence(run, index, layer, fed_before, *more)
        fed_before += step.fed


# -- what a whole call did ----------------------------------------------------------------------


def layers_skipped(feeding, n_layers: int) -> Cause | None:
    """A layer whose attention a finished call never came to, though that of others ran."""
    for step in feeding.passes:
        done = step.index < len(feeding.outputs) and step.rows == step.fed
        missing = [layer for layer in range(n_layers) if layer not in step.layers]
        if done and missing:
            which = f"layer{'s' * (len(missing) > 1)} {', '.join(map(str, missing))}"
            says = f"step {step.index}: {which} never ran"
            return Cause("layer never ran", says, step.index, missing[0])
    return None


# -- before anything is compared -------------------------------------------------------------------


def another_layers_at_once(layer: LayerEvidence):
    """Held at the start, and just stored for another layer: no leftover of an earlier text."""
    whole, keys = layer.reference.whole, layer.past.keys
    for other in [number for number in whole.layers if number != layer.number]:
        right = whole.keys[other][layer.sequence]
        if _all_in(keys, right) and layer.others is not None:
            says = f"layer {layer.number} was given what layer {other} had just stored"
            return layer.cause("another layer's slot", says)


def stale_cache(layer: LayerEvidence):
    """Held at the start: what is held tells which text left it."""
    says = f"the cache held {pluralize(layer.held, 'token')} before the first was fed"
    if layer.others is None:
        return layer.cause("stale cache", says)
    for name, text in layer.others.items():
        if _all_in(layer.past.keys, text.whole.keys[layer.number][0]):
            if name == "state shared between caches":
                says = "a second cache was filled with another text, and this one held its tokens"
            return layer.cause(name, says)
    keys = layer.past.keys
    what = "they are zeros" if not keys.any() else "none of them is of an earlier text"
    name = "not empty after reset" if layer.others else "not empty at first"
    return layer.cause(name, f"{says}, and {what}")


def _all_in(keys, right) -> bool:
    """Whether every column of keys is one of the right ones."""
    return bool(keys.shape[1]) and bool(match_columns(keys, right).any(1).all())


def other_rows(layer: LayerEvidence):
    """More rows than were fed: the whole text again, in one go, or something else."""
    n = max(layer.query.shape[1], getattr(layer.step, "rows", 0))
    text = layer.reference.whole.queries[layer.number][layer.sequence][:, : layer.end]
    is_whole = n == layer.end > layer.step.fed and not layer.differs(layer.query, text)
    name = "cache never read" if is_whole else UNKNOWN
    says = f"{n} row{'s were' if n > 1 else ' was'} computed for {layer.step.fed} fed"
    return layer.cause(name, says)


# -- the order in which the rules are tried --------------------------------------------------------

RULES = {  # what differs first -> the rules to try
    "start": (another_layers_at_once, stale_cache),
    "rows": (other_rows,),
    "held": COLUMN_RULES,
    "queries": QUERY_RULES,
    "columns": (page_table_off_by_one, page_in_the_table_twice, *COLUMN_RULES),
    "outputs": MASK_RULES,
}
