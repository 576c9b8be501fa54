"""Checks for the exercises. Each runs the learner's own function and never shows the answer.

They may import `kvviz.checking`, `kvviz.drawing`, `kvviz.recording` and the top-level modules.
"""

from kvviz.exercises.bits import quantise
from kvviz.exercises.caches import cache, causal_mask, chunked_prefill, forward
from kvviz.exercises.columns import keep_columns
from kvviz.exercises.conversation_edits import edits
from kvviz.exercises.costs import prediction, price
from kvviz.exercises.diagnosis import X, Y, Z, diagnose, fixed, repair
from kvviz.exercises.feedback import Feedback
from kvviz.exercises.guessing import generate_with_guesses
from kvviz.exercises.loops import describe, share_used
from kvviz.exercises.next_turn import next_turn
from kvviz.exercises.paging import shared_pages
from kvviz.exercises.positions import move
from kvviz.exercises.reuse import reusable
from kvviz.exercises.rounding import is_rounding
from kvviz.exercises.scheduling import scheduler
from kvviz.exercises.scoring import score_last_row
from kvviz.exercises.serving import fits, positions_from_mask
from kvviz.exercises.turns import two_turns

__all__ = ["Feedback", "X", "Y", "Z", "cache", "causal_mask", "chunked_prefill", "describe"]
__all__ += ["diagnose", "edits", "fits", "fixed", "forward", "generate_with_guesses"]
__all__ += ["is_rounding", "keep_columns", "move", "next_turn", "positions_from_mask"]
__all__ += ["prediction", "price", "quantise", "repair", "reusable", "scheduler"]
__all__ += ["score_last_row", "share_used", "shared_pages", "two_turns"]
