"""The error for a model that cannot be recorded."""

from __future__ import annotations

from typing import NoReturn


def refuse(model, reason: str | None = None) -> NoReturn:
    """Raise the error for a model that cannot be recorded, by name and with the reason."""
    reason = reason or (
        "its attention does not go through the library's attention interface (Llama, Mistral, "
        "GPT-2, GPT-NeoX, Gemma, Qwen and most decoders do)"
    )
    raise ValueError(f"{type(model).__name__} cannot be recorded: {reason}")
