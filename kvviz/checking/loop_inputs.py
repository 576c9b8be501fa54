"""What `check` takes: a prompt, and a decoder, which is judged in float32."""

from __future__ import annotations

import contextlib

import torch
from torch import nn
from transformers import PreTrainedModel

from kvviz.count import in_units

MAX_BYTES = 2**32  # a recording for a check, or a model in float32, may take this much
_HALF = (torch.bfloat16, torch.float16)
WHOLE_NUMBERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


def check_loop(loop):
    """Raise TypeError unless `loop` can be called, and isn't a model or a method of one."""
    if not callable(loop):
        raise TypeError(
            f"loop: expected a function loop(model, ids, n), and got {type(loop).__name__}"
        )
    inner = getattr(loop, "func", loop)  # of a functools.partial
    owner = getattr(inner, "__self__", inner)
    if isinstance(owner, nn.Module):
        name = type(owner).__name__
        name = name if owner is inner else f"{name}.{inner.__name__}"
        raise TypeError(
            f"loop: expected a function loop(model, ids, n), and got {name}, which takes other "
            "arguments: wrap it in a function of your own that takes (model, ids, n)"
        )


def check_model(model):
    """Raise unless `model` is a decoder of transformers with a head, and ready to generate.

    Raises:
        TypeError: a Forge, or no model of transformers.
        ValueError: no head, training mode, or too large to judge in float32.
    """
    name = type(model).__name__
    if not isinstance(model, PreTrainedModel):
        instead = "; for a Forge and its cache there is check_cache" * hasattr(model, "attend")
        raise TypeError(
            f"model: expected a model of transformers, as load_model returns it, and got {name}"
            f"{instead}"
        )
    if model.get_output_embeddings() is None:
        raise ValueError(
            f"model: {name} has no head that turns hidden states into logits: load it with "
            "AutoModelForCausalLM"
        )
    if model.training:
        raise ValueError(
            f"model: this {name} is in training mode, where dropout changes what it computes: "
            "call model.eval() first"
        )
    n_bytes = 4 * sum(tensor.numel() for tensor in _half_tensors(model))
    if n_bytes > MAX_BYTES:
        raise ValueError(
            f"model: this check judges in float32, which would take {in_units(n_bytes)} for "
            f"{name}, over its limit of {in_units(MAX_BYTES)}: take a smaller model"
        )


def check_prompt(ids, model=None, name: str = "ids"):
    """Raise ValueError unless `ids`, the argument `name`, is one prompt: (1, p) tokens of the
    model, p at least 1."""
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.shape[0] != 1 or not ids.numel():
        got = tuple(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"{name}: expected one prompt of shape (1, p), and got {got}")
    if ids.dtype not in WHOLE_NUMBERS:
        raise ValueError(f"{name}: expected whole numbers (torch.int64), and got {ids.dtype}")
    if model is None:
        return
    size = model.get_input_embeddings().weight.shape[0]
    for position, token in enumerate(ids[0].tolist()):
        if not 0 <= token < size:
            raise ValueError(
                f"{name}: expected tokens of this model, 0 to {size - 1}, and got {token} at "
                f"position {position}"
            )


def rotation_limit(model) -> int | None:
    """The length past which the model's rotation depends on the text's length; None if it never
    does."""
    config = model.config.get_text_config()
    rope = getattr(config, "rope_parameters", None) or {}
    kinds = [rope, *(each for each in rope.values() if isinstance(each, dict))]
    limits = []
    for each in kinds:
        if each.get("rope_type") == "longrope":
            limits.append(each.get("original_max_position_embeddings"))
        if each.get("rope_type") == "dynamic":
            limits.append(config.max_position_embeddings)
    return min(filter(None, limits), default=None)


def check_rotation(model, n_tokens: int, name: str = "ids"):
    """Raise ValueError if a text of this many tokens is rotated by its length.

    The keys of a right loop keep the rotation of the length at which they were stored, and a pass
    over the whole text rotates all of them for its own: the two differ, and neither is wrong.
    """
    limit = rotation_limit(model)
    if limit is not None and n_tokens > limit:
        raise ValueError(
            f"{name}: {n_tokens} tokens, held and new, are more than {limit}. Past that, this "
            "model's rotation depends on the text's length, so a right loop differs from one "
            "pass: take a shorter text, or a model with plain rotation"
        )


def _half_tensors(model: nn.Module) -> list[torch.Tensor]:
    """Parameters and buffers kept in 16 bits, each once."""
    tensors = {id(t): t for t in (*model.parameters(), *model.buffers()) if t.dtype in _HALF}
    return list(tensors.values())


@contextlib.contextmanager
def in_float32(model: nn.Module):
    """The model's 16-bit numbers in 32 bits inside the block; afterwards the same as before.

    So a difference that rounding to 16 bits would hide shows. The tensors stay the same objects:
    a loop may have its own name for the model.
    """
    before = [(tensor, tensor.data) for tensor in _half_tensors(model)]
    try:
        for tensor, data in before:
            tensor.data = data.float()
        yield
    finally:
        for tensor, data in before:
            tensor.data = data
