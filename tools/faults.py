"""Write the table of faults: which checks catch each one, and what they call it.

`python -m tools.faults` writes it to docs/faults.md; a test compares the file with the checks.
"""

from pathlib import Path

from kvviz import crop_faults, paged_faults
from kvviz.checking.cache import RightForge, judge_cache
from kvviz.faults import GALLERY

PAGE = Path(__file__).parents[1] / "docs" / "faults.md"
PROMPT = "The first law of motion states"
TITLE = """# Faults, and the checks that catch them

Every broken cache of `kvviz.faults`, checked by `kv.check_cache` against one pass without a cache:
six tokens and twelve new ones (with the default model, three). A ✓ marks a check that catches it:
**T**okens, **L**ogits, **K**eys and values as attention saw them, **C**hunks of 3 + 1 + 2,
**W**ork. The tokens may be equal for this prompt only. Written by `python -m tools.faults`.

| fault | T | L | K | C | W | T | L | K | C | W | named | what it does |
|---|---|---|---|---|---|---|---|---|---|---|---|---|
| | small | random | model | | | default | model | | | | | |
"""

TITLE_IN_PAGES = """
## In pages

Every broken cache of `kvviz.paged_faults`, with pages of 16 tokens, on both models. All five checks
above find them right; more tokens, or two caches that share pages, don't.

| fault | caught with | named | what it does |
|---|---|---|---|
"""

TITLE_OF_CROPS = """
## Going back

Every broken `crop` of `kvviz.crop_faults`, in pages of 16 tokens, on the small model. All that a
cache does while it grows is right; only tokens that are taken out again show the mistake.

| fault | caught with | named | what it does |
|---|---|---|---|
"""


def row(fault, verdicts) -> str:
    """One line of the table: which checks caught it on each model, and its name on both."""
    marks = ["·" if finding.passed else "✓" for v in verdicts for finding in v.findings]
    names = dict.fromkeys(verdict.cause for verdict in verdicts)
    return f"| {fault.name} | {' | '.join(marks)} | {', '.join(names)} | {fault.says} |\n"


def page(rights) -> str:
    """The whole page, checked against the right forge of each model."""
    found = [
        [judge_cache(right, fault.cache_class, fault.forge_class) for right in rights]
        for fault in GALLERY.values()
    ]
    rows = [row(fault, each) for fault, each in zip(GALLERY.values(), found, strict=True)]
    return TITLE + "".join(rows) + "\n" + count_right_texts(found) + pages_of_others(rights)


def pages_of_others(rights) -> str:
    """The tables of the faults of a cache in pages, on both models, and of a crop, on the first."""
    in_pages = [further_row(fault, rights) for fault in paged_faults.GALLERY.values()]
    crops = [further_row(fault, rights[:1]) for fault in crop_faults.GALLERY.values()]
    return TITLE_IN_PAGES + "".join(in_pages) + TITLE_OF_CROPS + "".join(crops)


def further_row(fault, rights) -> str:
    """One line of a fault that a single text doesn't show: what caught it, and its name."""
    verdicts = [judge_cache(right, fault.cache_class, fault.forge_class) for right in rights]
    caught = dict.fromkeys(
        next(finding.name for finding in verdict.findings if finding.passed is False)
        for verdict in verdicts
    )
    names = dict.fromkeys(verdict.cause for verdict in verdicts)
    return f"| {fault.name} | {', '.join(caught)} | {', '.join(names)} | {fault.says} |\n"


def count_right_texts(found) -> str:
    """How many of the faults leave the tokens right, on each model."""
    small, default = (sum(each[i].findings[0].passed for each in found) for i in range(2))
    return (
        f"Right tokens, wrong cache: {small} of {len(found)} (small model), {default} (default).\n"
    )


def rights(model, tokenizer) -> list[RightForge]:
    """The right forge for the small model, and for this one."""
    ids = tokenizer(PROMPT, return_tensors="pt").input_ids
    return [RightForge(), RightForge(model, ids, 3)]


if __name__ == "__main__":
    import kvviz as kv

    PAGE.write_text(page(rights(*kv.load_model())))
