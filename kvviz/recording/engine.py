"""Read the continuous batching of `transformers` while it runs; nothing in it is changed.

A pass gets its paged cache as a keyword argument, with every request's page table. The engine runs
in a thread of its own, whose target is a method of its manager: so the manager, and with it the
requests that wait, is known from the thread.

Source: transformers 5.24, `generation/continuous_batching`: `cache.py`, `cache_allocators/`,
    `scheduler.py` and `requests.py`.
"""

from __future__ import annotations

import contextlib
import itertools
import threading
import time
from typing import NamedTuple

import transformers

from kvviz.recording.refusal import refuse
from kvviz.recording.serving_step import ServingRequest

FULL = "full_attention"
KINDS = (FULL, "sliding_attention")
_ARGUMENTS = ("input_ids", "position_ids", "cu_seq_lens_q", "write_index")


def find_manager(thread=None):
    """The manager of the engine that runs in this thread; None in any other thread."""
    target = getattr(thread or threading.current_thread(), "_target", None)
    owner = getattr(target, "__self__", None)
    return owner if hasattr(owner, "batch_processor") and hasattr(owner, "model") else None


def list_managers(model) -> list:
    """The managers of the engines that serve this model now."""
    managers = map(find_manager, threading.enumerate())
    return [each for each in managers if each is not None and each.model is model]


def stop(manager, **how):
    """Stop an engine, and wait until its thread has ended."""
    while manager.batch_processor is None and manager.is_running():
        time.sleep(0.01)  # it is only being set up, and would warn of that
    manager.stop(block=True, **how)


def check_kinds(model):
    """Refuse a model whose layers the engine does not serve, or without full attention.

    Raises:
        ValueError: there is such a layer, or no layer attends to everything.
    """
    config = model.config.get_text_config()
    kinds = getattr(config, "layer_types", None)
    if kinds is None:
        kinds = [KINDS[getattr(config, "sliding_window", None) is not None]]
    if odd := sorted({*kinds} - {*KINDS}):
        refuse(model, f"the engine of transformers serves no layer of type {odd[0]}")
    if FULL not in kinds:
        refuse(model, "all its layers have a window, and record_serving shows pages of full ones")


class Pages(NamedTuple):
    """The pages for layers that attend to everything, as a `ServingStep` takes them."""

    page_size: int
    n_pages: int
    owners: dict[int, tuple[str, ...]]
    fill: dict[int, int]
    free: tuple[int, ...]
    cached: tuple[int, ...]
    reserved: tuple[int, ...]
    lent: tuple[int, ...]
    windows: dict[int, int]


@contextlib.contextmanager
def name_missing(model):
    """Inside the block, a field that the engine does not have refuses the model by name."""
    try:
        yield
    except (AttributeError, KeyError) as error:
        version = transformers.__version__
        reason = f"the engine of transformers {version} is not the one that is known: {error}"
        try:
            refuse(model, reason)
        except ValueError as refused:
            raise refused from error


def check_engine(model, given: dict, processor):
    """Refuse a pass that cannot be read as it stands.

    Raises:
        ValueError: the engine pads its passes, or runs ahead of its own results.
    """
    missing = [name for name in _ARGUMENTS if given.get(name) is None]
    if missing:
        raise KeyError(missing[0])
    if processor.model_runner.pad_inputs:
        refuse(
            model,
            "its engine pads its passes, for CUDA graphs or torch.compile: set use_cuda_graph=False"
            " and default_compile_level=0, or auto_switch_to_flash=False, in its "
            "ContinuousBatchingConfig",
        )
    if processor.use_async_batching or given.get("block_table") is not None:
        refuse(
            model,
            "its engine runs ahead of its results, or lets the kernel find the pages: set "
            "use_async_batching=False and max_blocks_per_request=0 in its ContinuousBatchingConfig",
        )


def read_requests(given: dict, scheduler) -> tuple[list[ServingRequest], list[ServingRequest]]:
    """The requests fed in a pass, in its order, and those that only hold pages."""
    allocator = given["cache"].cache_allocators[FULL]
    table, size = allocator.block_table, allocator.tokens_per_page
    starts = given["cu_seq_lens_q"].tolist()
    ids, positions = (given[name][0].tolist() for name in ("input_ids", "position_ids"))
    written = given["write_index"][allocator.index].tolist()
    # Where a request writes, nobody else does: a page is shared only once it is full.
    writers = {}
    for name, pages in table.items():
        writers |= {(page, number): name for number, page in enumerate(pages)}
    fed = []
    for start, end in itertools.pairwise(starts):
        if start == end:  # it is in the pass without a row: a prompt of one token, to be forked
            continue
        first, last = positions[start], positions[end - 1]
        name = writers[written[end - 1] // allocator.block_physical_stride, last // size]
        fed.append(
            ServingRequest(
                name=name,
                rows=end - start,
                held_before=first,
                held=last + 1,
                phase=_find_phase(scheduler.active_requests[name]),
                pages=tuple(table[name]),
                token_ids=tuple(ids[start:end]),
                positions=tuple(positions[start:end]),
            )
        )
    names = {each.name for each in fed}
    idle = []
    for name, pages in table.items():
        if name not in names:
            held = scheduler.active_requests[name].position_offset
            idle.append(ServingRequest(name, 0, held, held, "idle", tuple(pages), (), ()))
    return fed, idle


def _find_phase(state):
    if state.generated_tokens:
        return "decode"
    return "chunk" if state.remaining_prefill_tokens else "prefill"


def read_pages(cache, holding) -> Pages:
    """All pages, and how full they are once the pass has written."""
    allocator, pool = cache.cache_allocators[FULL], cache.pool
    size, per_sector = allocator.tokens_per_page, allocator.blocks_per_sector
    owners: dict[int, tuple[str, ...]] = {}
    cached = tuple(allocator.ledger.cached_blocks)
    fill = dict.fromkeys(cached, size)
    for each in holding:
        for number, page in enumerate(each.pages):
            owners[page] = (*owners.get(page, ()), each.name)
            filled = min(size, max(0, each.held - number * size))
            fill[page] = max(fill.get(page, 0), filled)
    free = [page for pages in pool._free_blocks[allocator.index].trees.values() for page in pages]
    for sector in pool.free_sectors:
        free += range(sector * per_sector, (sector + 1) * per_sector)
    first = pool.num_reserved_sectors * per_sector
    usable = range(first, first + allocator.num_blocks)
    lent = {*usable} - owners.keys() - {*free} - {*cached}
    windows = {
        layer: each.sliding_window
        for each in cache.cache_allocators.values()
        if hasattr(each, "sliding_window")
        for layer in each.layer_indices
    }
    return Pages(
        page_size=size,
        n_pages=allocator.num_blocks,
        owners=owners,
        fill=fill,
        free=tuple(sorted(free)),
        cached=cached,
        reserved=tuple(range(first)),
        lent=tuple(sorted(lent)),
        windows=windows,
    )


def count_pages(cache, n_tokens: int) -> tuple[int, int]:
    """What one request that holds `n_tokens` takes: its pages, and the num_blocks it needs."""
    sectors = 0
    for each in cache.cache_allocators.values():
        held = min(n_tokens, getattr(each, "sliding_window", n_tokens))
        sectors += -(-held // (each.tokens_per_page * each.blocks_per_sector))
    whole = sum(each.bytes_per_block for each in cache.cache_allocators.values())
    pages = -(-n_tokens // cache.cache_allocators[FULL].tokens_per_page)
    return pages, (sectors - 1) * cache.bytes_per_sector // whole + 1
