"""The exercises' checks. Each runs the learner's own function, and never shows the answer."""

from .caches import X, Y, Z, causal_mask, chunked_prefill, diagnose, is_rounding, mended
from .costs import prediction, price
from .feedback import Feedback, wrong
from .loops import describe, plain_loop, positions, reusable

__all__ = ["Feedback", "X", "Y", "Z", "causal_mask", "chunked_prefill", "describe", "diagnose"]
__all__ += ["is_rounding", "mended", "plain_loop", "positions", "prediction", "price", "reusable"]
__all__ += ["wrong"]
