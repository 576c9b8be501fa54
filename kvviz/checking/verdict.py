"""What a check found, written as a good teacher would: the point first, then what supports it."""

from __future__ import annotations

import dis
import html
import traceback
from dataclasses import dataclass, field
from pathlib import Path

_MARK = {True: "✓", False: "✗", None: "·"}

_EMPTY = ("RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE", "RETURN_CONST")

_HERE = str(Path(__file__).parents[1])


def own_frames(error: BaseException) -> list[traceback.FrameSummary]:
    """The learner's own part of a traceback: neither our lines nor an installed library's."""
    frames = traceback.extract_tb(error.__traceback__)
    return [f for f in frames if "site-packages" not in f.filename and _HERE not in f.filename]


def own_lines(error: BaseException) -> str:
    """The learner's own lines of a traceback, one under the other; empty if there are none."""
    frames = own_frames(error)
    return "\n".join(f"line {f.lineno} of {f.name}:  {f.line}" for f in frames)


def unwritten(function) -> bool:
    """Whether a function of the learner's has no lines yet: no words either, its body is `...`."""
    if not hasattr(function, "__code__") or function.__doc__:
        return False
    does = [each for each in dis.get_instructions(function) if each.opname not in _EMPTY]
    returns = [each.argval for each in dis.get_instructions(function) if "CONST" in each.opname]
    return not does and returns in ([None], [...])


@dataclass(frozen=True)
class Finding:
    """One of the checks: `passed` is None where an earlier difference kept it from being made."""

    name: str
    passed: bool | None
    says: str


@dataclass(frozen=True)
class Verdict:
    """The findings of a check, and the likely cause of the first difference.

    Attributes:
        passed: whether everything compared is equal.
        headline: what is right, or the first thing that is wrong, in one line.
        cause: a short name of the mistake; empty if passed, "not recognised" if it has no name.
        advice: what to look at next; empty if passed.
        findings: tokens, logits, keys and values, work.
        remarks: what is worth saying and is no mistake.
        gaps: name -> largest difference measured, for those who want the digits.
        step, layer, place: where the first difference stands; None where it has no such place.
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
    place: int | None = None

    @property
    def mark(self) -> str:
        return "·" if self.cause == "not done yet" else _MARK[self.passed]

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
        return "".join(parts)
