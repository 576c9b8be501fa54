"""Bad input, everywhere: each public name answers it at its entrance, with what it expected.

The rows are in `bad_input/`, by public name: a call with one bad value in it, the type of the error
and what it must say. A public name without rows is an error here.
"""

import contextlib
import dataclasses
import inspect
import io
import json
import os
import re
import socket
import time
import traceback
import types
import warnings
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
import traitlets
from bad_input import code, counting, pictures, recordings
from bad_input.rows import HUGE, NAN, Of
from small import gpt2, llama, prompt
from transformers import ContinuousBatchingConfig

import kvviz as kv
from kvviz.arguments import describe
from kvviz.widgets.animation import Animation
from kvviz.widgets.memory_panel import MemoryPanel
from kvviz.widgets.serving_stepper import ServingStepper
from kvviz.widgets.stepper import Stepper

TABLE = {**counting.TABLE, **recordings.TABLE, **pictures.TABLE, **code.TABLE}
RESULTS = [Stepper, ServingStepper, Animation, MemoryPanel]  # what public functions return
HELPERS = {"kvviz.arguments", "kvviz.progress"}  # imported, not offered
# Modules that check what came; an error from anywhere else comes from near the call itself.
ENTRANCES = (
    "arguments inputs files hub checks input_checks loop_inputs requests step steps hooks".split()
)
NEAR = 5  # kvviz's own calls
LONG = 400  # characters of an error
ROOT = str(Path(kv.__file__).parent)


# -- which names there are -------------------------------------------------------------------------


def _takes_arguments(function) -> bool:
    kinds = [each.kind for each in inspect.signature(function).parameters.values()]
    return any(kind not in (inspect.Parameter.VAR_KEYWORD,) for kind in kinds) or "classes" in str(
        inspect.signature(function)
    )


def _is_record(kind) -> bool:
    """Whether a class is made by kvviz as a result: plain fields that nothing checks."""
    plain = dataclasses.is_dataclass(kind) and not hasattr(kind, "__post_init__")
    return plain or hasattr(kind, "_fields") or issubclass(kind, BaseException)


def _called_by_the_forge() -> set[str]:
    """Methods that `Forge.forward` calls with what it has checked."""
    calls = [inspect.unwrap(each).__code__ for each in (kv.Forge.forward, kv.Forge.block)]
    return {name for code in calls for name in code.co_names}


def _list_methods(kind):
    """The public methods of a class that take something, and how many steps up it inherits them."""
    for name in dir(kind):
        if name.startswith("_") and name != "__getitem__":
            continue
        found = inspect.getattr_static(kind, name)
        function = getattr(kind, name) if isinstance(found, classmethod | staticmethod) else found
        if not callable(function) or not (getattr(function, "__module__", None) or "").startswith(
            "kvviz"
        ):
            continue
        if dataclasses.is_dataclass(kind) and isinstance(found, classmethod):
            continue  # it makes a result
        skipped = 0 if isinstance(found, classmethod) else 1  # self
        if len(inspect.signature(function).parameters) > skipped:
            if name != "answer" and not (kind is kv.Forge and name in _called_by_the_forge()):
                yield name, getattr(kind, name)


def _list_class(name: str, kind):
    if not _is_record(kind) and kind not in RESULTS and _takes_arguments(kind):
        yield name, kind
    for method, function in _list_methods(kind):
        yield f"{name}.{method}", function


def _is_in_kv(member) -> bool:
    return getattr(kv, member.__name__, None) is member


def _list_names():
    """Each public name that takes something, and what it stands for."""
    for name in kv.__all__:
        value = getattr(kv, name)
        if isinstance(value, types.ModuleType):
            offered = getattr(value, "__all__", None) or [n for n in vars(value) if n[0] != "_"]
            members = [(f"{name}.{each}", getattr(value, each)) for each in offered]
        else:
            members = [(name, value)]
        for named, member in members:
            if inspect.isclass(member) and issubclass(member, kv.KVCache | kv.Forge):
                if named not in ("KVCache", "PagedKVCache", "Forge"):
                    continue  # a cache or a forge with a fault: it checks what it inherits
            is_own = getattr(member, "__module__", None) or ""
            if not callable(member) or not is_own.startswith("kvviz") or is_own in HELPERS:
                continue
            if inspect.isclass(member):
                yield from _list_class(named, member)
            elif _takes_arguments(member) and (named == name or not _is_in_kv(member)):
                yield named, member
    for kind in RESULTS:
        yield from _list_class(kind.__name__, kind)


NAMES = dict(_list_names())


def test_each_public_name_that_takes_something_has_rows():
    assert NAMES.keys() - TABLE.keys() == set(), "they take something, and have no rows"
    assert TABLE.keys() - NAMES.keys() == set(), "they have rows, and aren't public"


# -- what the rows are given -----------------------------------------------------------------------


def _write_files(run):
    """Files that are no recordings, each in its own way, beside names that can't be written to."""
    for name in ("folder", "folder.npz", "folder.png", "folder.gif", "folder.html"):
        Path(name).mkdir()
    Path("text.npz").write_text("no recording at all")
    Path("empty.npz").write_bytes(b"")
    whole = run.save("good.npz").read_bytes()
    Path("truncated.npz").write_bytes(whole[: len(whole) // 2])
    np.savez("pickled.npz", meta=np.array([{"a": 1}], dtype=object))
    np.save("bare.npz", np.ones(3))
    Path("bare.npz.npy").rename("bare.npz")
    with zipfile.ZipFile("other.npz", "w") as archive:
        archive.writestr("../outside.txt", "elsewhere")
    changes = {"newer": {"kvviz": 99}, "negative": {"max_bytes": -1}, "worded": {"steps": "many"}}
    for name, change in changes.items():
        _rewrite(f"{name}.npz", lambda meta, change=change: meta | change)
    _rewrite("held.npz", lambda meta: meta["steps"][1].update(held_before=-1) or meta)
    _rewrite("listed.npz", lambda meta: [meta])
    np.savez("nested.npz", meta=np.array("[" * 100_000))
    _rewrite("bomb.npz", lambda meta: meta, huge=True)


def _rewrite(path, change, huge=False):
    """The good recording with its counts changed, or with an array that claims to be huge."""
    with np.load("good.npz") as good:
        arrays = {name: good[name] for name in good.files}
    arrays["meta"] = np.array(json.dumps(change(json.loads(str(arrays["meta"])))))
    np.savez(path, **arrays)
    if huge:
        content = io.BytesIO()
        header = {"descr": "<i8", "fortran_order": False, "shape": (10**13,)}
        np.lib.format.write_array_header_1_0(content, header)
        with zipfile.ZipFile(path, "a") as archive:
            archive.writestr("0/extra.npy", content.getvalue())


def _record(model, ids, keep, use_cache=True, **options):
    with kv.record(model, keep=keep, **options) as run:
        model.generate(ids, max_new_tokens=4, do_sample=False, use_cache=use_cache)
    return run


@pytest.fixture(scope="module")
def given(tmp_path_factory):
    """What is recorded once for all rows, in a folder with files that are no recordings."""
    folder = tmp_path_factory.mktemp("bad")
    with contextlib.chdir(folder):
        yield _make_given(folder)


def _make_given(folder):
    model, ids, other = llama(), prompt(6), gpt2()
    g = types.SimpleNamespace(folder=folder, model=model, ids=ids, config=model.config)
    g.other_model, g.tied = other, llama(tie_word_embeddings=True)
    g.run = _record(model, ids, ("attention", "queries", "keys", "values", "outputs"))
    g.some, g.counts = _record(model, ids, ("attention",), layers=[1]), _record(model, ids, ())
    g.uncached = _record(model, ids, ("attention",), use_cache=False)
    g.other = _record(other, ids - 1, ("attention",))
    g.alike = _record(other, ids, ("attention",), use_cache=False)
    with kv.record(model) as g.empty:
        pass
    pages = ContinuousBatchingConfig(page_size=4, num_blocks=16, max_batch_tokens=8)
    with kv.record_serving(model, keep=("attention",)) as g.served:
        texts = [ids[0].tolist(), [*ids[0].tolist(), 7]]
        model.generate_batch(texts, continuous_batching_config=pages, max_new_tokens=3)
    g.step, g.square, g.served_step = g.run[1], g.run[0].square(1, 0), g.served[1]
    g.forge, g.short_cache = kv.Forge.small(), kv.KVCache(3)
    g.entry, g.base = kv.KVEntry(*torch.rand(2, 1, 2, 3, 14)), torch.rand(2, 3, 4)
    g.long, g.picture = ids.repeat(1, 11), kv.draw_step(g.run)
    g.walk, g.served_walk = kv.stepper(g.run), kv.stepper(g.served)
    g.panel = kv.memory_panel(g.config)
    g.animation = kv.animate(g.run, steps=[0])
    g.comparison = kv.timing.Comparison({"a": (1.0,) * 6, "b": (2.0,) * 6})
    g.config_with = lambda **changes: _change(llama().config, changes)
    _write_files(g.run)
    g.served.save("engine.npz")
    g.notebook = folder / "text.npz"
    return g


def _change(config, changes):
    config.__dict__.update(changes)  # past the library's own checks
    return config


# -- how each is answered --------------------------------------------------------------------------


def _list_said(value) -> set[str]:
    """The ways in which an error may say what came."""
    said = {
        describe(value),
        type(value).__name__,
        repr(value)[:60],
        str(getattr(value, "dtype", "x")),
    }
    if isinstance(value, str):  # of a whole file's content, one field or the file's name does
        said |= {"config.json can't be read", *(["llama"] if "llama" in value else [])}
        said |= {value[:60], value.encode("unicode_escape").decode()[:60]}
    if isinstance(shape := getattr(value, "shape", None), tuple):
        said |= {str(tuple(shape)), *map(str, shape), *map(str, np.ravel(value.tolist())[:3])}
    if np.isscalar(value):
        said.add("shape ()")
    if isinstance(value, dict):
        value = [*value, *value.values()]
    if isinstance(value, range):
        value = list(value)
    if isinstance(value, list | tuple):
        said |= {str(len(value))}.union(*map(_list_said, value))
    return {each for each in said if each}


def _judge_error(name, row, value, error) -> str:
    """What is wrong with how a bad value is answered; empty if nothing is."""
    says = str(error)
    if not isinstance(error, row.error):
        return f"expected {row.error.__name__}"
    if not re.search(row.says, says, re.DOTALL):
        return f"expected it to say {row.says!r}"
    if "\n" in says or len(says) > LONG or "object at 0x" in says:
        return "expected one line in a few words"
    if not isinstance(row.value, Of) and not any(each in says for each in _list_said(value)):
        return "expected it to say what came"
    docs = f"{inspect.getdoc(NAMES[name])} {_find_class_doc(name)}"
    kinds = [kind.__name__ for kind in type(error).__mro__[:-3]]
    if "Raises:" not in docs or not any(kind in docs.partition("Raises:")[2] for kind in kinds):
        return f"expected its docstring to name {type(error).__name__}"
    own = [Path(frame.filename) for frame in traceback.extract_tb(error.__traceback__)]
    last, own = own[-1], [path for path in own if str(path).startswith(ROOT)]
    if not str(last).startswith(ROOT):
        return f"raised outside of kvviz, in {last}"
    near = len(own) <= NEAR or any(last.stem.endswith(each) for each in ENTRANCES)
    return "" if near else f"raised deep inside: {[path.stem for path in own]}"


def _find_class_doc(name: str) -> str:
    kind = NAMES.get(name.rpartition(".")[0])
    parts = name.split(".")
    kind = kind or getattr(kv, parts[0], None) if len(parts) > 1 else None
    return inspect.getdoc(kind) or "" if inspect.isclass(kind) else ""


def _try_row(name, rows, row, given) -> str:
    value = getattr(given, row.value) if isinstance(row.value, Of) else row.value
    before, start = sorted(os.listdir()), time.process_time()
    problem = ""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            answer = rows.call(given, value)
        except Exception as error:
            problem = "expected feedback" if row.error is None else ""
            problem = problem or _judge_error(name, row, value, error)
            came = f"{type(error).__name__}: {str(error)[:200]!r}"
        else:
            came = f"{str(answer)[:80]!r}"
            if row.error is not None or getattr(answer, "passed", True):
                problem = "expected an error" if row.error else "expected it not to pass"
    problem = problem or (f"warned: {warned[0].message}" if warned else "")
    if left := set(os.listdir()) - set(before):
        problem = problem or f"left {left} behind"
    problem = problem or ("took long" if time.process_time() - start > 2 else "")
    return f"{name}, {describe(row.value)}: {problem}; got {came}" if problem else ""


@pytest.mark.parametrize("name", TABLE)
def test_bad_input_is_answered_at_the_entrance(name, given):
    hooks = [given.model._forward_hooks, given.model._forward_pre_hooks]
    settings = given.model.config._attn_implementation, given.model.training
    wrong = [_try_row(name, rows, row, given) for rows in TABLE[name] for row in rows.rows]
    assert not any(wrong), "\n" + "\n".join(filter(None, wrong))
    assert not any(map(len, hooks)), "a hook stays on the model"
    assert settings == (given.model.config._attn_implementation, given.model.training)


@pytest.mark.parametrize(
    ("widget", "trait", "values"),
    [
        ("walk", "step", (4, -1, "a", None, 0.5, NAN, HUGE)),
        ("walk", "layer", (3, -1, "a", None)),
        ("walk", "head", (6, -1, "a", None)),
        ("walk", "cached", (False, "a", None)),
        ("served_walk", "step", (4, -1, "a", None)),
        ("served_walk", "view", ("rows", 3, None, ["pages"])),
        ("panel", "tokens", (-1, "a", None, 10**12)),
        ("panel", "batch_size", (0, "a", None)),
        ("panel", "precision", ("3 bits", 3, None)),
    ],
)
def test_a_widget_keeps_what_it_shows(widget, trait, values, given):
    shown, before = getattr(given, widget), getattr(getattr(given, widget), trait)
    for value in values:
        with pytest.raises(traitlets.TraitError) as caught:
            setattr(shown, trait, value)
        assert trait in str(caught.value) and getattr(shown, trait) == before


TAKEN = [(name, i) for name in TABLE for i, rows in enumerate(TABLE[name]) if rows.good is not None]


@pytest.mark.parametrize(("name", "i"), TAKEN)
def test_a_tensor_without_axes_is_a_whole_number(name, i, given):
    rows = TABLE[name][i]
    expected = str(rows.call(given, rows.good))
    numpy_number = np.int64(rows.good) if i % 2 else np.array(rows.good)
    for good in (torch.tensor(rows.good), numpy_number):
        assert str(rows.call(given, good)) == expected


def test_a_generator_is_read_once(given):
    for draw in (kv.draw_filmstrip, kv.animate):
        with_list = draw(given.run, steps=[0, 2])
        assert repr(draw(given.run, steps=(each for each in (0, 2)))) == repr(with_list)
    over = kv.draw_overlay(given.uncached, steps=(each for each in (1, 2)))
    assert over.sentence.startswith("Step 2 over step 1")
    assert kv.count.pages_needed((n for n in (33, 40)), 16) == 6
    with kv.record(given.model, keep=(n for n in ("keys",)), layers=(n for n in (1,))) as run:
        given.model(given.ids)
    assert list(run[0].keys) == [1]


@pytest.mark.parametrize(
    ("silent", "load"),
    [("accepts and never answers", kv.load_config), ("never accepts", kv.load_model)],
)
def test_a_hub_that_never_answers_is_given_up_within_three_seconds(silent, load, monkeypatch):
    with socket.socket() as hole:
        hole.bind(("127.0.0.1", 0))
        hole.listen(0)
        address = hole.getsockname()
        waiting = []
        if silent == "never accepts":  # further calls are dropped, as by a firewall
            for _ in range(4):
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(address)
        monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", f"http://127.0.0.1:{address[1]}")
        start = time.monotonic()
        with pytest.raises(kv.ModelUnavailable, match="the hub can't be reached") as caught:
            load("nobody/nothing")
        assert time.monotonic() - start < 3
        assert "nobody/nothing" in str(caught.value)
        for each in waiting:
            each.close()
