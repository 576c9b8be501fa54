"""What a check found: the point first, then what supports it."""

from __future__ import annotations

import html
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

from kvviz.checking.causes import Cause

_MARK = {True: "✓", False: "✗", None: "·"}


@dataclass(frozen=True)
class Finding:
    """One comparison: `passed` is None where an earlier difference left nothing to compare."""

    name: str
    passed: bool | None
    says: str


@dataclass(frozen=True)
class Verdict:
    """The findings of a check, and the likely cause of the first difference.

    Attributes:
        passed: whether everything that was compared is equal.
        headline: what is right, or the first thing that is wrong, in one line.
        cause: a short name for the mistake; empty if passed, "not recognised" if it has no name.
        advice: what to look at next; empty if passed.
        findings: tokens, logits, keys and values, work; for a cache also chunks.
        remarks: worth knowing, but no mistake.
        gaps: what was compared -> largest difference, relative to the largest number.
        step, layer, position: where the first difference is; None where that means nothing.
        savings: the rows that were computed beside those of a loop without a cache, if passed.
        draw: gives the picture when it is asked for; None where there is nothing to draw.

    >>> verdict = kv.check_cache(kv.faults.GALLERY["written twice"].cache_class)
    >>> verdict.passed, verdict.cause, verdict.step
    (False, 'written twice', 1)
    """

    passed: bool
    headline: str
    cause: str = ""
    advice: str = ""
    findings: tuple[Finding, ...] = ()
    remarks: tuple[str, ...] = ()
    gaps: dict[str, float] = field(default_factory=dict)
    step: int | None = None
    layer: int | None = None
    position: int | None = None
    savings: str = ""
    draw: Callable | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_cause(cls, cause: Cause, **rest) -> Verdict:
        """A failing verdict with the cause's name, advice and place; `rest` adds or replaces."""
        found = {"headline": cause.says, "cause": cause.name, "advice": cause.advice}
        found |= {"step": cause.step, "layer": cause.layer, "position": cause.position}
        found |= {"remarks": (cause.remark,) if cause.remark else ()}
        return cls(False, **{**found, **rest})

    @property
    def mark(self) -> str:
        """✓ passed, ✗ failed, · not written yet."""
        return "·" if self.cause == "not done yet" else _MARK[self.passed]

    @cached_property
    def picture(self):
        """The step that went wrong beside the right one, its flaws marked; if passed, the first
        steps. None where nothing was seen. A `Picture`, drawn when it is first asked for.

        >>> kv.check_cache(kv.faults.GALLERY["written twice"].cache_class).picture
        yours: step 1, layer 0, head ...: 8 columns, 1 row; column 6 holds '10', expected '17'; ...
        """
        return None if self.draw is None else self.draw()

    def __repr__(self):
        width = max((len(finding.name) for finding in self.findings), default=0)
        lines = [f"{self.mark} {self.headline}"]
        lines += [f"  {line}" for line in self.advice.splitlines()]
        lines += [f"  {_MARK[f.passed]} {f.name:<{width}}  {f.says}" for f in self.findings]
        lines += [f"  Note: {remark}" for remark in self.remarks]
        return "\n".join(lines)

    def _repr_html_(self):
        rows = "".join(
            f"<tr><td>{_MARK[f.passed]}</td><th scope='row' style='text-align:left'>"
            f"{html.escape(f.name)}</th><td style='text-align:left'>{html.escape(f.says)}</td></tr>"
            for f in self.findings
        )
        parts = [f"<p><strong>{self.mark} {html.escape(self.headline)}</strong></p>"]
        if self.advice:
            shape = "pre" if "\n" in self.advice else "p"
            parts.append(f"<{shape}>{html.escape(self.advice)}</{shape}>")
        parts.append(f"<table>{rows}</table>" if rows else "")
        parts += [f"<p>Note: {html.escape(remark)}</p>" for remark in self.remarks]
        if self.picture is not None:
            parts.append(f"<p>{self.picture.html}</p>")
        parts.append(f"<p>{html.escape(self.savings)}.</p>" if self.savings else "")
        return "".join(parts)
