"""What `draw_flow` shows of one step, read from a recording, and its sentence."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from kvviz import tokens
from kvviz.drawing import sentences
from kvviz.recording.square import WRITTEN, Square
from kvviz.words import pluralize

GONE = ("pad", "empty", "dropped")  # columns that a layer's attention doesn't see


@dataclass(frozen=True)
class Flow:
    """One step, from the tokens fed to the next token.

    Attributes:
        square: the head that is drawn open.
        slots: for each layer from 0, the states of its keys and of its values; None for a layer
            that has none.
        kept: for each layer, whether its keys and values stay in a cache.
        n_heads, n_kv_heads: of the open layer; None if the recording doesn't say.
        following: the next token's text; None if the recording doesn't say.
        is_fed: whether the next step was seen to be fed `following`.
    """

    square: Square
    slots: list[tuple[tuple[str, ...], tuple[str, ...]] | None]
    kept: list[bool]
    n_heads: int | None
    n_kv_heads: int | None
    following: str | None
    is_fed: bool

    @property
    def fed(self) -> list[str]:
        """The texts of the tokens fed, without padding."""
        return [self.square.token_of(row) for row in self.square.real_rows]

    @property
    def kv_head(self) -> int | None:
        """The key/value head that the open query head reads."""
        if not self.n_heads or not self.n_kv_heads:
            return None
        return self.square.head * self.n_kv_heads // self.n_heads


def read_flow(run, square: Square) -> Flow:
    """The flow of the step that `square` is from."""
    step = run[square.step]
    slots, kept = [], []
    for layer in range(max(step.layers) + 1):
        seen = layer in step.layers
        slots.append(_read_slot(step, layer, square) if seen else None)
        kept.append(seen and step.after.get(layer, 0) > 0)
    following, is_fed = _find_following(run, step, square.sequence)
    return Flow(
        square=square,
        slots=slots,
        kept=kept,
        n_heads=_count_heads(step, square.layer, ("attention", "queries", "outputs")),
        n_kv_heads=_count_heads(step, square.layer, ("keys", "values")),
        following=following,
        is_fed=is_fed,
    )


def _read_slot(step, layer: int, square: Square):
    """States of a layer's keys and values: the open layer's, but for what its window drops."""
    attended = set(step.column_positions(layer).tolist())
    both = []
    for role in ("keys", "values"):
        states = list(square.states_of(role))
        for j, state in enumerate(states):
            if j not in attended and state not in ("pad", "empty"):
                states[j] = "dropped"
            elif j in attended and state == "dropped":
                states[j] = "read"
        both.append(tuple(states))
    return tuple(both)


def _count_heads(step, layer: int, kinds) -> int | None:
    found = [step.kept[kind][layer].shape[1] for kind in kinds if layer in step.kept.get(kind, {})]
    return found[0] if found else None


def _find_following(run, step, sequence: int) -> tuple[str | None, bool]:
    """The token that came out of this step: the one fed next, or the one with the largest logit."""
    for later in list(run)[step.index + 1 :]:
        for row, parent in enumerate(later.lineage.parents):
            if parent == (step.index, sequence):
                return later.label(int(later.token_ids[row, 0])), True
    again = run[step.index + 1] if step.index + 1 < len(run) else None
    if again is not None and not step.cached and again.fed == step.fed + 1:
        before, now = step.token_ids[sequence].tolist(), again.token_ids[sequence].tolist()
        if now[:-1] == before:
            return again.label(now[-1]), True
    logits = step.kept.get("logits")
    if logits is None:
        return None, False
    return step.label(int(logits[-1][sequence].argmax())), False


# -- the sentence --------------------------------------------------------------------------------


def describe_flow(flow: Flow, start: int = 0) -> str:
    """The whole flow: what goes in, what each layer reads and writes, what the open head does."""
    square = flow.square
    where = [f"step {square.step}", f"layer {square.layer}", f"head {square.head}"]
    if square.sequence:
        where.insert(1, f"sequence {square.sequence}")
    fed = flow.fed
    through = f"the embedding, {pluralize(len(flow.slots), 'layer')} and the output layer"
    clauses = [
        f"{tokens.quoted(fed[0])}, one token, goes through {through}"
        if len(fed) == 1
        else f"{len(fed)} tokens go through {through}",
        describe_slots(flow),
        describe_open(flow),
        sentences.describe_fed(square),
        sentences.describe_left_out(square, start),
        sentences.describe_doubt(square),
        sentences.describe_held(square),
        describe_following(flow),
    ]
    return f"{', '.join(where)}: {'; '.join(filter(None, clauses))}"


def count_slots(flow: Flow) -> Counter[tuple[int, int, int]]:
    """How many layers read, recompute and newly write how many keys: {(read, again, new): n}."""
    each: Counter = Counter()
    for slot, is_kept in zip(flow.slots, flow.kept, strict=True):
        if slot and (is_kept or not any(flow.kept)):
            n = Counter(slot[0])
            each[n["read"] + n["earlier"], n["recomputed"], n["new"]] += 1
    return each


def describe_slots(flow: Flow) -> str:
    """What the layers read from their slots and write to them."""
    counts = count_slots(flow).most_common()
    words = "; ".join(_describe_slot(*work, n, len(flow.slots), flow.kept) for work, n in counts)
    return words if any(flow.kept) else f"no cache: {words}, and none is kept"


def _describe_slot(read: int, again: int, new: int, n: int, of: int, kept: list[bool]) -> str:
    every = "in each layer" if n == of else f"in {n} of {of} layers"
    made = again + new
    if not any(kept):
        words = f"{every}, {pluralize(made, 'key')} and as many values are computed"
    elif read:
        were = "is" if read == 1 else "are"
        words = (
            f"{every}, {pluralize(read, 'column')} {were} read from the cache and {made} written"
        )
    else:
        words = f"{every}, {pluralize(made, 'column')} {'is' if made == 1 else 'are'} written"
    return f"{words}, {again} of them recomputed" if again else words


def summarize_slots(flow: Flow) -> str:
    """`each layer reads 9, writes 1`, for under the slots."""
    (read, again, new), n = count_slots(flow).most_common(1)[0]
    who = "each layer" if n == len(flow.slots) else f"{n} of {len(flow.slots)} layers"
    reads, writes = ("reads", "writes") if n == len(flow.slots) or n == 1 else ("read", "write")
    if not any(flow.kept):
        return f"{who} {'computes' if writes.endswith('s') else 'compute'} {again + new}"
    return f"{who} {f'{reads} {read}, ' if read else ''}{writes} {again + new}"


def describe_open(flow: Flow) -> str:
    """What the open head's newest row attends to most, and which key/value head it reads."""
    square = flow.square
    shared = ""
    if flow.kv_head is not None and flow.n_kv_heads != flow.n_heads:
        shared = f", which reads key/value head {flow.kv_head} of {flow.n_kv_heads},"
    head = f"query head {square.head}" + f" of {flow.n_heads}" * bool(flow.n_heads)
    if square.weights is None or square.newest is None:
        return f"{head}{shared.rstrip(',')}: attention was not kept"
    return f"{head}{shared} attends {_add_most(sentences.describe_head(square))}"


def _add_most(words: str) -> str:
    """`head 8 to ' object', 96%` without its head, with `most` before it."""
    rest = words.split(" ", 2)[2]
    return rest if rest == "to nothing" else f"most {rest}"


def describe_following(flow: Flow) -> str:
    if flow.following is None:
        return ""
    name = "the next token" if flow.is_fed else "the likeliest next token"
    return f"{name} is {tokens.quoted(flow.following)}"


def count_written(states) -> int:
    return sum(state in WRITTEN for state in states)
