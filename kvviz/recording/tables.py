"""How many token ids and positions a model has rows for in its tables."""

from __future__ import annotations

import torch


def count_embeddings(model) -> int | None:
    """Rows of the table that token ids are looked up in; None if there isn't one table."""
    try:
        table = model.get_input_embeddings()
    except (NotImplementedError, AttributeError):
        return None
    return len(table.weight) if isinstance(table, torch.nn.Embedding) else None


def find_position_limit(decoder, config) -> int | None:
    """The most positions that the decoder can look up; None if it computes them, as rotary does.

    A table of positions is an embedding, or a tensor that is no weight, with a row for each of the
    config's positions; some models have up to two rows more.
    """
    limit = getattr(config, "max_position_embeddings", None)
    if not isinstance(limit, int):
        return None
    tokens = count_embeddings(decoder)
    for module in decoder.modules():
        if isinstance(module, torch.nn.Embedding):
            tables = [module.weight]
        else:
            plain = [value for value in vars(module).values() if isinstance(value, torch.Tensor)]
            tables = [*module.buffers(recurse=False), *plain]
        lengths = [len(table) for table in tables if table.ndim == 2]
        if any(limit <= length <= limit + 2 and length != tokens for length in lengths):
            return limit
    return None
