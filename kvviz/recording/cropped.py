"""Which rows of a forward pass were cropped: taken out of the cache before another pass read them.

It's told by what later passes hold, so a recording knows it once one of them went on from there.
"""

from __future__ import annotations

import weakref


class CacheNumbers:
    """A number for each cache object, so that a copy isn't taken for the cache it was made from.

    The objects themselves aren't kept.
    """

    def __init__(self):
        self._known: dict[int, tuple[weakref.ref, int]] = {}
        self._next = 0

    def number(self, cache) -> int | None:
        """The number of this object; None for no cache, or for one that takes no weak reference."""
        reference, number = self._known.get(id(cache), (None, None))
        if reference is not None and reference() is cache:
            return number
        try:
            self._known[id(cache)] = weakref.ref(cache), self._next
        except TypeError:
            return None
        self._next += 1
        return self._next - 1


def count_cropped(step) -> int | None:
    """How many of the last rows of `step` were cropped: no later pass holds them.

    It's known if the same cache object goes on with exactly the columns that were left in it, but
    for the last ones. A copy tells only which rows were kept: what it lacks may still be in the
    cache that it was made from. Of a cache that drops columns itself, or has them out of order,
    nothing is said.

    Returns:
        Rows; None where it isn't known: nothing went on from this step, or another cache did.
    """
    if not step.cached:
        return None
    most, is_known = 0, False
    for later in step.run[step.index + 1 :]:
        for sequence, parent in enumerate(later.lineage.parents):
            if parent is None or parent[0] != step.index:
                continue
            if not later.lineage.keys_known[sequence].all():
                continue  # a window that has moved on, or columns that were changed
            most = max(most, min(step.fed, later.held_before - step.held_before))
            is_known |= _is_same_cache(step, later)
            if most == step.fed:
                return 0
    in_order = step.lineage.key_order is None is step.lineage.value_order
    if not is_known or not in_order or step.held_after != step.visible:
        return None
    return step.fed - most


def _is_same_cache(step, later) -> bool:
    return step.lineage.cache is not None and step.lineage.cache == later.lineage.cache
