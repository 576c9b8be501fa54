"""What a loop's cache kept from one call to the next, as far as the first call shows it."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from kvviz.checking.compare import count_common

CANNOT_CROP = ("linear_attention", "conv")  # kinds of layers whose state can't be taken back


@dataclass(frozen=True)
class Kept:
    """What a cache held when its loop was called again with a text that goes on, or was edited.

    Attributes:
        text: the right tokens that the first call computed: what its cache holds, from the first.
        new: the tokens of the new text.
        n_first_turn: tokens of the first turn's whole text; its last need not have been fed.
        has_guesses: whether the first call's last step was fed wrong guesses.
        can_crop: whether the model's layers still have what cropping needs.
    """

    text: tuple[int, ...]
    new: tuple[int, ...]
    n_first_turn: int
    has_guesses: bool = False
    can_crop: bool = True

    @property
    def n_common(self) -> int:
        """How many tokens, from the first, are the same in both texts.

        >>> from kvviz.checking.kept import Kept
        >>> Kept((5, 6, 7, 8), (5, 6, 9, 8), 5).n_common
        2
        """
        return count_common(self.text, self.new)

    @property
    def n_reusable(self) -> int:
        """How many of them can be kept: one token has to be fed, for its row."""
        return min(self.n_common, len(self.new) - 1)

    @property
    def is_expected(self) -> bool:
        """Whether something can be kept: not if a crop is needed that the layers don't allow."""
        return self.n_reusable > 0 and (self.can_crop or self.n_reusable == len(self.text))


def find_kept(first, then: Tensor, model) -> Kept:
    """What the evidence of a right first call says about the cache that its second call finds."""
    end = max(step.right_end for step in first.right_steps)
    kinds = getattr(model.config.get_text_config(), "layer_types", None) or ()
    return Kept(
        text=tuple(first.reference.ids[0, :end].tolist()),
        new=tuple(then[0].tolist()),
        n_first_turn=first.out.shape[1],
        has_guesses=first.steps[-1].n_stray > 0,
        can_crop=not {*kinds} & {*CANNOT_CROP} and not _has_dropped(first.run[-1]),
    )


def _has_dropped(step) -> bool:
    """Whether a layer doesn't hold the first column any more, because of its window."""
    return any(0 not in step.column_positions(layer) for layer in step.layers)
