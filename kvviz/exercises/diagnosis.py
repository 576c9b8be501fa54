"""Notebook 06: three unnamed caches to diagnose and fix, and one class as people publish it."""

from __future__ import annotations

import re
from dataclasses import replace

from kvviz.checking.cache import check_cache
from kvviz.checking.verdict import Verdict
from kvviz.exercises.feedback import Feedback, accept, reject, with_hints
from kvviz.faults import GALLERY, Fault
from kvviz.forge import Forge, KVCache

_UNNAMED = {
    "X": GALLERY["keys and values in front"],
    "Y": GALLERY["position counted twice"],
    "Z": GALLERY["cache never read"],
}
X, Y, Z = (type(name, (fault.forge_class,), {}) for name, fault in _UNNAMED.items())
_BROKEN = {"X": X, "Y": Y, "Z": Z}
_PUBLISHED = "mask from the top left"  # what `check_cache` calls the bug in notebook 06's class

_HINTS = {
    ("X", "fine"): "Its tokens and logits are. Feed it 3 + 1 + 2: chunks tell more than one query.",
    ("X", "precision"): "The entries differ by more than rounding, but the logits don't.",
    ("X", "keys in front"): "Then no key would find its own value, and the text would break.",
    ("X", "keys and values reversed"): "Close: it's the order. Draw X: is all of it "
    "reversed, or does only the newest column stand in the wrong place?",
    ("Y", "precision"): "Rounding would change the values too, and in layer 0 they're equal.",
    ("Y", "fine"): "The tokens are equal for this prompt. Look at the gap, and at the keys.",
    ("Y", "key at position 0"): "That is far enough off to break this text. Y's is right: its "
    "positions are off by less.",
    ("Y", "counter left behind"): "That shifts every position alike, so the logits stay the same. "
    "Y's don't.",
    ("Z", "fine"): "Every number is right. Look at the work: count the rows.",
}
_COMPARE = "Find that fault in the picture of all faults: which check tells the two apart?"


# -- the diagnoses -------------------------------------------------------------------------------


@with_hints(
    "Take each cache's evidence to the picture of all faults: which rows agree with it?",
    "A position changes keys and not values. An order changes where both are, and not the sum. "
    "And one of the three gets every number right: what did that cost?",
)
def diagnose(answers) -> Feedback:
    """Notebook 06: `answers` {"X": name, "Y": name, "Z": name}, the faults of the unnamed caches.

    A name is a fault's or its cause's, in any spelling, a fault of `kv.faults`, or "fine".

    Raises:
        ValueError: `answers` isn't a dict with exactly X, Y and Z.

    >>> kv.exercises.diagnose({"X": "Wrong_order", "Y": ..., "Z": ...})
    · not done yet: X is right; Y and Z are still to be named
    """
    if not isinstance(answers, dict) or set(answers) != set(_UNNAMED):
        got = sorted(map(str, answers)) if isinstance(answers, dict) else type(answers).__name__
        raise ValueError(f"diagnose: expected answers for X, Y and Z, got {got}")
    names = {name: _read_name(answers[name]) for name in _UNNAMED}
    right = [which for which, name in names.items() if name in _accepted(which)]
    wrong = [
        _tell_wrong(which, name, answers[which])
        for which, name in names.items()
        if name != "" and which not in right
    ]
    if len(right) == len(_UNNAMED):
        return accept(
            "X has the wrong order, Y counts a position twice, Z is never read: all three found"
        )
    if not right and not wrong:
        return Feedback("not done yet", "replace each ... with the name of a fault, or with 'fine'")
    return _sum_up(right, wrong, [which for which, name in names.items() if name == ""], "named")


def _accepted(which: str) -> set[str]:
    fault = _UNNAMED[which]
    return {fault.name, fault.group}


def _read_name(answer) -> str | None:
    """The name in an answer, with single spaces and in lower case.

    Empty for one that's still to be given, and None for what isn't a name.
    """
    if answer is ... or answer is None:
        return ""
    if isinstance(answer, Fault):
        return answer.name
    answer = answer.__name__ if isinstance(answer, type) else answer
    return re.sub(r"[\W_]+", " ", answer).strip().lower() if isinstance(answer, str) else None


def _tell_wrong(which: str, name: str | None, answer) -> str:
    known = {"fine", *GALLERY, *(fault.group for fault in GALLERY.values())}
    if name not in known:
        shown = repr(answer[:60]) if isinstance(answer, str) else type(answer).__name__
        return f"{which}: {shown} is no fault in the picture of all faults, and not 'fine'."
    group = GALLERY[name].group if name in GALLERY else name
    hint = _HINTS.get((which, name)) or _HINTS.get((which, group), _COMPARE)
    return f"{which} isn't {name!r}. {hint}"


# -- the fixes -----------------------------------------------------------------------------------


@with_hints(
    "kv.check_cache(forge_class=FixedX) says in its first line what is still wrong.",
    "X: what is concatenated first comes first. Y: a token's position is the number of tokens held "
    "before it. Z: the cache already holds the text, so feed it only the new tokens.",
)
def fixed(**classes) -> Feedback:
    """Notebook 06: X, Y and Z, each fixed in a subclass; each is judged by `kv.check_cache`.

    Raises:
        ValueError: the classes aren't given as X=, Y= and Z=.

    >>> X, Y, Z = kv.exercises.X, kv.exercises.Y, kv.exercises.Z
    >>> kv.exercises.fixed(X=X, Y=Y, Z=Z)
    · not done yet: X, Y and Z are still to be fixed: they're as broken as before
    """
    if set(classes) != set(_BROKEN):
        raise ValueError(f"fixed: expected X=..., Y=... and Z=..., got {sorted(classes)}")
    right, wrong, left, pictures = [], [], [], []
    for name, broken in _BROKEN.items():
        kind = classes[name]
        if kind is ... or kind is None:
            left.append(name)
        elif not (isinstance(kind, type) and issubclass(kind, broken)):
            wrong.append(f"{name}: pass your class, class Fixed{name}(kv.exercises.{name}).")
        elif (verdict := check_cache(KVCache, kind)).passed:
            right.append(name)
        elif verdict.cause in ("not done yet", _UNNAMED[name].group):
            left.append(name)
        else:
            wrong.append(f"{name}: {_tell(verdict)}")
            pictures.append(verdict.picture)
    if len(right) == len(_BROKEN):
        return accept(
            "all three have the right tokens, logits, keys and values, in chunks too, at 1 row a "
            "step",
            verdict.picture,
        )
    feedback = _sum_up(right, wrong, left, "fixed", ": {} as broken as before")
    return replace(feedback, picture=pictures[0]) if pictures else feedback


@with_hints(
    "kv.check_cache(forge_class=Published) says which check fails, and where it fails first.",
    "Write down for the third chunk, 2 rows with 4 tokens held, which columns each row may see. "
    "Then print what the class lets it see.",
)
def repair(forge_class) -> Feedback:
    """Notebook 06: the published class, fixed in its own `attend`; judged by `kv.check_cache`.

    >>> kv.exercises.repair(kv.Forge)
    ✗ not right yet: fix the class in place: it still needs its own attend
    """
    if not (isinstance(forge_class, type) and issubclass(forge_class, Forge)):
        return reject(f"expected your class Published, but got {type(forge_class).__name__}")
    if forge_class is Forge or "attend" not in vars(forge_class):
        return reject("fix the class in place: it still needs its own attend")
    verdict = check_cache(KVCache, forge_class)
    if verdict.passed:
        says = "right in chunks too: every row sees all the tokens held, and those up to its own"
        return accept(says, verdict.picture)
    caught = [finding.name for finding in verdict.findings if finding.passed is False]
    if verdict.cause == "not done yet" or (verdict.cause, caught) == (_PUBLISHED, ["chunks"]):
        return Feedback(
            "not done yet", "it passes every check but chunks, as it did when published"
        )
    return reject(_tell(verdict), verdict.picture)


def _tell(verdict: Verdict) -> str:
    return f"{verdict.headline}. {verdict.advice}" if verdict.advice else verdict.headline


def _sum_up(right: list, wrong: list, left: list, done: str, more: str = "") -> Feedback:
    """What's right, what's wrong and what's still to do, each judged by itself."""
    says = []
    if right:
        says.append(f"{_list(right)} {'is' if len(right) == 1 else 'are'} right")
    if left:
        verb, they = ("is", "it's") if len(left) == 1 else ("are", "they're")
        says.append(f"{_list(left)} {verb} still to be {done}{more.format(they)}")
    if not wrong:
        return Feedback("not done yet", "; ".join(says))
    rest = [f"{'; '.join(says)}."] if says else []
    return reject("\n".join([*wrong, *rest]))


def _list(names: list[str]) -> str:
    *first, last = names
    return f"{', '.join(first)} and {last}" if first else last
