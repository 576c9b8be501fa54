"""Where a learner's scored attempts stand: a table and a picture, best first, the newest marked."""

from __future__ import annotations

import html
from dataclasses import dataclass

from kvviz.words import pluralize

DRAWN = 10  # attempts in a picture: the best ones, and always the newest


@dataclass(frozen=True)
class Attempt:
    """One scored attempt; `number` counts from 1, and `score` is rounded as it is shown."""

    number: int
    name: str
    score: float
    checks: tuple[tuple[str, bool], ...] = ()
    remark: str = ""


@dataclass(frozen=True)
class Standing:
    """A leaderboard at one moment: `rows` with the best first, and the `newest` row's number."""

    score: str
    better: str
    digits: int
    to_beat: tuple[tuple[str, float], ...]
    rows: tuple[Attempt, ...]
    newest: int | None

    def write(self, score: float) -> str:
        return f"{score + 0.0:,.{self.digits}f}".replace("-", "−")  # + 0.0: no minus before 0

    @property
    def sentence(self) -> str:
        """Where the newest attempt stands, and what it beats."""
        if self.newest is None:
            return "no scored attempt yet"
        n = len(self.rows)
        newest = next(row for row in self.rows if row.number == self.newest)
        place = f"number {rank} of" if (rank := self.rank(newest)) > 1 else "the best of"
        tied = "tied for " * (self._count_equals(newest) > 1)
        place = f"{tied}{place} your {n} attempts" if n > 1 else "your first attempt"
        clauses = [f"{self.score} {self.write(newest.score)}, {place}"]
        for name, level in self.to_beat:
            behind = self._is_better(level, newest.score)
            verb = "is behind" if behind else "ties with" if level == newest.score else "beats"
            clauses.append(f"{verb} {name} ({self.write(level)})")
        return "; ".join(clauses)

    def rank(self, attempt: Attempt) -> int:
        """1 for the best; attempts with the same score share a rank."""
        return 1 + sum(self._is_better(row.score, attempt.score) for row in self.rows)

    def _count_equals(self, attempt: Attempt) -> int:
        return sum(row.score == attempt.score for row in self.rows)

    def _is_better(self, one: float, other: float) -> bool:
        return one < other if self.better == "lower" else one > other

    def list_lines(self) -> list[tuple[str, ...]]:
        """The table's lines: rank, attempt, score, each check, and notes; the first has the heads.

        What's to beat stands among the attempts, without a rank.
        """
        names = list(dict.fromkeys(name for row in self.rows for name, _ in row.checks))
        lines = []
        for row in self.rows:
            notes = [row.remark, "newest" * (row.number == self.newest)]
            checks = [
                {True: "yes", False: "no"}.get(dict(row.checks).get(name), "") for name in names
            ]
            note = ", ".join(filter(None, notes))
            lines.append((str(self.rank(row)), self.label(row), row.score, *checks, note))
        lines += [("", name, level, *[""] * len(names), "to beat") for name, level in self.to_beat]
        lines.sort(key=lambda line: line[2] if self.better == "lower" else -line[2])
        heads = ("", "attempt", f"{self.score} ({self.better} is better)", *names, "")
        return [heads, *((*line[:2], self.write(line[2]), *line[3:]) for line in lines)]

    def label(self, row: Attempt) -> str:
        return f"#{row.number} {row.name}"

    def __repr__(self):
        lines = self.list_lines()
        if len(lines) == 1:
            return self.sentence
        wide = [max(len(line[k]) for line in lines) for k in range(len(lines[0]))]
        aligned = [
            "  ".join(
                words.rjust(n) if k in (0, 2) else words.ljust(n)
                for k, (words, n) in enumerate(zip(line, wide, strict=True))
            ).rstrip()
            for line in lines
        ]
        return "\n".join(aligned)

    def _repr_html_(self):
        lines = self.list_lines()
        if len(lines) == 1:
            return f"<p>{self.sentence}</p>"
        head = "".join(f"<th>{html.escape(words)}</th>" for words in lines[0])
        rows = ""
        for line in lines[1:]:
            mark = "<b>{}</b>" if line[-1].endswith("newest") else "{}"
            cells = (mark.format(html.escape(words)) for words in line)
            rows += f"<tr>{''.join(f'<td>{cell}</td>' for cell in cells)}</tr>"
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"

    def draw(self):
        """A bar for each attempt, the newest marked, with what's to beat as lines; None if there's
        nothing to compare.
        """
        if not self.rows or len(self.rows) + len(self.to_beat) < 2:
            return None
        from kvviz.drawing.charts import draw_bars

        drawn = [r for k, r in enumerate(self.rows) if k < DRAWN or r.number == self.newest]
        names = {row.number: self.label(row) for row in drawn}
        newest = [names[self.newest]] if self.newest in names else []
        words = self.sentence
        if left_out := len(self.rows) - len(drawn):
            words += f"; {pluralize(left_out, 'attempt')} not drawn"
        values = {names[row.number]: row.score for row in drawn}
        listed = ", ".join(f"{name} {self.write(score)}" for name, score in values.items())
        title = (
            f"{self.score[0].upper()}{self.score[1:]} of your attempts ({self.better} is better)"
        )
        return draw_bars(
            values,
            title=title,
            levels=dict(self.to_beat),
            highlight=newest,
            marked="newest",
            sentence=f"{title}: {listed}; the newest: {words}",
        )
