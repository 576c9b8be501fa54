"""The verdict on two calls of a loop, the second with the text of a chat's next turn."""

from __future__ import annotations

from dataclasses import replace

from kvviz.checking.kept import Kept
from kvviz.checking.loop_evidence import LoopEvidence
from kvviz.checking.loop_work import describe_pace
from kvviz.checking.verdict import Finding, Verdict
from kvviz.words import pluralize


def join_verdicts(first: Verdict, second: Verdict, loop: LoopEvidence) -> Verdict:
    """One verdict on both calls; `loop` is the evidence of the second."""
    if not second.passed:
        return replace(second, headline=f"in the second turn: {second.headline}")
    kept, fed = loop.kept, loop.reference.n_prompt - loop.n_reused
    total = pluralize(loop.reference.n_prompt, "token")
    finding = Finding("second turn", True, _describe_rows(loop, kept))
    gaps = {name: max(gap, second.gaps.get(name, 0)) for name, gap in first.gaps.items()}
    new = [remark for remark in second.remarks if remark not in first.remarks]
    remarks = [*first.remarks, *(f"second turn: {remark}" for remark in new)]
    return replace(
        first,
        headline=f"{first.headline}; second turn: fed {fed} of {total}",
        findings=(*first.findings, finding),
        remarks=(*remarks, *_describe_waste(loop, kept)),
        gaps=gaps,
        savings=f"second turn: {second.savings}" * bool(second.savings),
        draw=second.draw,
    )


def _describe_rows(loop: LoopEvidence, kept: Kept) -> str:
    """What the second call kept, took out and computed."""
    reused, total = loop.n_reused, sum(loop.run.rows)
    cropped = max(0, len(kept.text) - reused)
    says = f"equal too: kept {reused}, cropped {cropped}, fed {len(kept.new) - reused}"
    return f"{says}; {describe_pace(loop)}; {pluralize(total, 'row')} in all"


def _describe_waste(loop: LoopEvidence, kept: Kept) -> list[str]:
    """That less was kept than could have been."""
    again = kept.n_reusable - loop.n_reused
    if again > 0 and not kept.is_expected:
        return ["second turn: started again, since these layers can't be cropped that far"]
    if again > 0:
        common = f"{pluralize(kept.n_reusable, 'token')} in both texts"
        were = "was" if again == 1 else "were"
        return [f"second turn: {again} of the {common} {were} cropped and fed again"]
    return []
