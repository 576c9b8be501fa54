"""Checks for the exercises. Each runs the learner's own function and never shows the answer.

They may import `kvviz.checking`, `kvviz.drawing`, `kvviz.recording` and the top-level modules.
"""

from kvviz.exercises.caches import causal_mask, chunked_prefill
from kvviz.exercises.costs import prediction, price
from kvviz.exercises.diagnosis import X, Y, Z, diagnose, fixed, repair
from kvviz.exercises.feedback import Feedback
from kvviz.exercises.loops import describe, plain_loop, positions, reusable
from kvviz.exercises.rounding import is_rounding

__all__ = ["Feedback", "X", "Y", "Z", "causal_mask", "chunked_prefill", "describe", "diagnose"]
__all__ += ["fixed", "is_rounding", "plain_loop", "positions", "prediction", "price", "repair"]
__all__ += ["reusable"]
