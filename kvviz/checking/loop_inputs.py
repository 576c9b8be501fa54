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
    """Raise TypeError unless `loop` can be called."""
    if not callable(loop):
        raise TypeError(
            f"loop: expected a function loop(model, ids, n), and got {type(loop).__name__}"
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


def check_prompt(ids, model=None):
    """Raise ValueError unless `ids` is one prompt, (1, p) tokens of the model, p at least 1."""
    if not isinstance(ids, torch.Tensor) or ids.ndim != 2 or ids.shape[0] != 1 or not ids.numel():
        got = tuple(ids.shape) if isinstance(ids, torch.Tensor) else type(ids).__name__
        raise ValueError(f"ids: expected one prompt of shape (1, p), and got {got}")
    if ids.dtype not in WHOLE_NUMBERS:
        raise ValueError(f"ids: expected whole numbers (torch.int64), and got {ids.dtype}")
    if model is None:
        return
    size = model.get_input_embeddings().weight.shape[0]
    for position, token in enumerate(ids[0].tolist()):
        if not 0 <= token < size:
            raise ValueError(
                f"ids: expected tokens of this model, 0 to {size - 1}, and got {token} at "
                f"position {position}"
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
