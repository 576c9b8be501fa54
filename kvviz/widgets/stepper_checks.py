"""What a stepper refuses: recordings it can't show, and a step, layer or head that isn't there."""

from __future__ import annotations

from collections.abc import Sequence

from kvviz.arguments import check_whole
from kvviz.recording.run import Run


def check_recording(name: str, run) -> None:
    """Raise TypeError or ValueError for what a stepper can't show."""
    if not isinstance(run, Run):
        raise TypeError(
            f"{name}: expected a recording, such as `with kv.record(model) as run:` makes, "
            f"but got {type(run).__name__}"
        )
    if not len(run):
        raise ValueError(f"{name}: this recording has no steps; run a loop inside `with kv.record`")
    if not all(step.kept.get("attention") for step in run):
        raise ValueError(
            f"{name}: attention was not kept in this recording; record it with keep=('attention',)"
        )


def check_pair(run: Run, uncached: Run) -> None:
    """Raise ValueError unless both show one prompt and model, one with and one without a cache."""
    if len(run) != len(uncached):
        raise ValueError(
            f"expected two recordings of the same length: run has {len(run)} steps, "
            f"uncached has {len(uncached)}"
        )
    prompts = [each[0].token_ids.tolist() for each in (run, uncached)]
    if prompts[0] != prompts[1]:
        raise ValueError("expected two recordings of the same prompt, but the prompts differ")
    sizes = [_find_sizes(each[0]) for each in (run, uncached)]
    if sizes[0] != sizes[1]:
        raise ValueError(
            f"expected two recordings of the same model: run has layers with {sizes[0]} heads, and "
            f"uncached {sizes[1]}"
        )
    if uncached[-1].held_before:
        raise ValueError(
            f"uncached: expected a recording without a cache, but its last step read "
            f"{uncached[-1].held_before} keys from one. The order is stepper(run, uncached)."
        )


def _find_sizes(step) -> str:
    """The numbers of query heads of its layers, of those that were kept."""
    return ", ".join(map(str, sorted({each.shape[1] for each in step.attention.values()})))


def list_heads(runs: dict[bool, Run]) -> dict[int, int]:
    """How many heads each layer has whose attention every recording kept; ValueError if none."""
    first = next(iter(runs.values()))
    heads = {
        kept: weights.shape[1]
        for kept, weights in sorted(first[0].attention.items())
        if all(kept in each[0].attention for each in runs.values())
    }
    if not heads:
        raise ValueError("expected recordings that kept attention for at least one layer in common")
    return heads


def check_step(step, n_steps: int) -> int:
    return _check_among("step", step, "this recording has steps", range(n_steps))


def check_layer(layer, heads: dict[int, int]) -> int:
    return _check_among("layer", layer, "attention was kept for layers", list(heads))


def check_head(head, layer: int, heads: dict[int, int]) -> int:
    return _check_among("head", head, f"layer {layer} has heads", range(heads[layer]))


def check_sequence(sequence, batch_size: int) -> int:
    return _check_among("sequence", sequence, "this recording has sequences", range(batch_size))


def check_switch(cached: bool, runs: dict[bool, Run]) -> None:
    if cached not in runs:
        kind = "with" if True in runs else "without"
        raise ValueError(f"cached={cached}: this stepper's recording is {kind} a cache")


def _check_among(name: str, value, has: str, numbers: Sequence[int]) -> int:
    value = check_whole(name, value)
    if value in numbers:
        return value
    first, last = numbers[0], numbers[-1]
    known = ", ".join(map(str, numbers))
    if len(numbers) == last - first + 1:
        known = f"{first} to {last}" if last > first else f"{first} only"
    raise ValueError(f"{name} {value}: {has} {known}")
