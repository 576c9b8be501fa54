"""Runs of a serving engine, made by hand: which request is fed how many rows in which step."""

from kvviz.recording.serving_step import ServingRequest, ServingStep


def serve(prompts, fed, *, page_size=8, n_pages=16, shared=None, put_back=(), arrives=None):
    """A run of the steps `fed` [{name: rows}]; pages are given out from the last one down.

    `prompts` {name: tokens}; `shared` {name: (other name, pages)} that a request finds in place;
    `put_back` (name, step) loses its pages; `arrives` {name: step} at which it begins to wait.
    """
    shared, arrives = shared or {}, arrives or {}
    free, cached = list(range(n_pages + 1, 1, -1)), []
    held, tables, need, done, steps = {}, {}, dict(prompts), set(), []
    last = {name: i for i, rows in enumerate(fed) for name in rows}
    for index, rows in enumerate(fed):
        lost = [name for name, at in put_back if at == index]
        for name in lost:
            need[name] = held[name] + 1
            held.pop(name)
            for page in tables.pop(name):
                if not any(page in table for table in tables.values()):
                    free.append(page)
        requests = []
        for name, n in rows.items():
            if name not in tables:
                other, pages = shared.get(name, (None, 0))
                tables[name] = list(tables[other][:pages]) if other else []
                held[name] = pages * page_size
            before = held[name]
            held[name] = after = before + n
            while len(tables[name]) * page_size < after:
                tables[name].append(free.pop(0) if free else cached.pop(0))
            phase = "decode" if before >= need[name] else "prefill"
            phase = "chunk" if phase == "prefill" and after < need[name] else phase
            requests.append((name, before, after, phase))
        idle = [(name, held[name], held[name], "idle") for name in tables if name not in rows]
        owners, fill = {}, {page: page_size for page in cached}
        for name, table in tables.items():
            for k, page in enumerate(table):
                owners.setdefault(page, []).append(name)
                fill[page] = max(fill.get(page, 0), min(page_size, held[name] - k * page_size))
        here = {name for name in prompts if arrives.get(name, 0) <= index}
        steps.append(
            ServingStep(
                index=index,
                engine=0,
                requests=tuple(_make(*each, tables[each[0]]) for each in requests),
                idle=tuple(_make(*each, tables[each[0]]) for each in idle),
                page_size=page_size,
                n_pages=n_pages,
                owners={page: tuple(names) for page, names in sorted(owners.items())},
                fill=fill,
                free=tuple(sorted(free)),
                cached=tuple(cached),
                reserved=(0, 1),
                lent=(),
                waiting=tuple(name for name in prompts if name in here - {*tables} - done),
                preempted=tuple(lost),
                finished=tuple(name for name in prompts if last[name] == index - 1),
            )
        )
        for name in [name for name in tables if last[name] == index]:
            done.add(name)
            full = held.pop(name) // page_size
            for k, page in enumerate(tables.pop(name)):
                if not any(page in table for table in tables.values()):
                    (cached if k < full else free).append(page)
    return steps


def _make(name, before, after, phase, table):
    positions = tuple(range(before, after))
    tokens = tuple(3 + position % 89 for position in positions)
    return ServingRequest(
        name, after - before, before, after, phase, tuple(table), tokens, positions
    )


def shared_prefix():
    """Two prompts begin alike; the second comes two steps later and is fed only its own end."""
    fed = [{"sky": 29}, {"sky": 1}, {"sky": 1, "sea": 5, "sun": 13}]
    fed += [{"sky": 1, "sea": 1, "sun": 1}] * 3 + [{"sea": 1, "sun": 1}] * 2
    prompts = {"sky": 29, "sea": 29, "sun": 13}
    return serve(prompts, fed, shared={"sea": ("sky", 3)}, arrives={"sea": 2, "sun": 2})


def chunked():
    """A long prompt goes in by chunks between other requests' decode rows."""
    fed = [{"sky": 13, "sea": 19}, {"sky": 1, "sea": 10, "sun": 21}]
    fed += [{"sky": 1, "sea": 1, "sun": 30}, {"sky": 1, "sea": 1, "sun": 20}]
    fed += [{"sky": 1, "sea": 1, "sun": 1}] * 2 + [{"sea": 1, "sun": 1}] * 2
    return serve({"sky": 13, "sea": 29, "sun": 71}, fed, n_pages=32)


def crowded():
    """No room: one request waits, and another is put back and fed again."""
    fed = [{"sky": 14, "sea": 15}, {"sky": 1, "sea": 1}, {"sky": 1, "sea": 1}, {"sky": 1}]
    fed += [{"sky": 1}, {"sky": 1}, {"sea": 18, "sun": 9}] + [{"sea": 1, "sun": 1}] * 3
    prompts = {"sky": 14, "sea": 15, "sun": 9}
    return serve(prompts, fed, n_pages=5, put_back=[("sea", 3)])
