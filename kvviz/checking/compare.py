"""Tell columns apart: which of the right ones each is, and whether it was kept more coarsely.

Keys or values of one layer and batch row, (heads, columns, D).
"""

import torch

SAME = 1e-4  # of its size: how far a column may be from the one it is taken for


def near(ours, right):
    """(C, N) bool: which of `right`'s columns each of ours is; both (heads, columns, D)."""
    if ours.shape[0] != right.shape[0] or ours.shape[2] != right.shape[2]:
        return torch.zeros(ours.shape[1], right.shape[1], dtype=torch.bool)
    a, b = (x.double().transpose(0, 1).flatten(1) for x in (ours, right))
    return torch.cdist(a, b, compute_mode="donot_use_mm_for_euclid_dist") <= SAME * b.norm(dim=1)


def which(near, preferred):
    """The column each is: the preferred where that fits too, for tokens repeat; -1 for none."""
    fits = [row.nonzero()[:, 0].tolist() for row in near]
    wished = zip(fits, preferred, strict=True)
    return [p if p in fit else fit[0] if fit else -1 for fit, p in wished]


def coarse(x):
    """In words, if these numbers (heads, columns, D) are of a coarser kind than float32."""
    for name, kind in (("in bfloat16", torch.bfloat16), ("in float16", torch.float16)):
        if torch.equal(x.to(kind).to(x.dtype), x):
            return name
    for dims in (
        (2,),
        (0, 2),
        (1,),
        (0, 1, 2),
    ):  # a scale for each token's head, token, number, or one
        low, high = x.amin(dims, keepdim=True), x.amax(dims, keepdim=True)
        largest, spread = x.abs().amax(dims, keepdim=True), (high - low).clamp_min(1e-30)
        for levels in (127, 7):
            steps = x / largest.clamp_min(1e-30) * levels, (x - low) / spread * (2 * levels + 1)
            if any((each - each.round()).abs().max() < 0.01 for each in steps):
                return f"in {levels.bit_length() + 1} bits"
    return None


def these(places):
    if len(places) == 1:
        return f"place {places[0]}"
    if places == list(range(places[0], places[-1] + 1)):
        return f"places {places[0]} to {places[-1]}"
    return f"places {short(places)}"


def short(places):
    return ", ".join(map(str, places[:8])) + ", ..." * (len(places) > 8)
