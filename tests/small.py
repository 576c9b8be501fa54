"""Small random decoders of several architectures; odd sizes, so that a swapped axis shows."""

import torch
import transformers as tf

from kvviz.recording.recorder import record

VOCAB = 101


def _build(config):
    torch.manual_seed(0)
    config._attn_implementation = None
    model = tf.AutoModelForCausalLM.from_config(config).eval()
    for weight in model.parameters():  # the tiny initial weights would make attention flat
        if weight.ndim > 1:
            torch.nn.init.normal_(weight, std=0.12)
    return model


def llama(n_positions=97, **changes):
    sizes = dict(hidden_size=66, head_dim=22, num_attention_heads=6, num_key_value_heads=2)
    rest = dict(intermediate_size=58, num_hidden_layers=3, vocab_size=VOCAB)
    rest["max_position_embeddings"] = n_positions
    return _build(tf.LlamaConfig(**{**sizes, **rest, **changes}))


def multi_query():
    return llama(num_key_value_heads=1)


def gpt2(n_positions=97):
    sizes = dict(n_embd=51, n_head=3, n_layer=2, vocab_size=VOCAB)
    return _build(tf.GPT2Config(**sizes, n_positions=n_positions))


def gpt_neox(n_positions=97):
    sizes = dict(hidden_size=66, num_attention_heads=3, intermediate_size=58)
    rest = dict(num_hidden_layers=2, vocab_size=VOCAB, max_position_embeddings=n_positions)
    return _build(tf.GPTNeoXConfig(**sizes, **rest))


def mistral(window=5):
    sizes = dict(hidden_size=66, head_dim=22, num_attention_heads=6, num_key_value_heads=2)
    rest = dict(intermediate_size=58, num_hidden_layers=2, vocab_size=VOCAB)
    return _build(tf.MistralConfig(**sizes, **rest, sliding_window=window))


def gemma3(window=5):
    sizes = dict(hidden_size=66, head_dim=22, num_attention_heads=6, num_key_value_heads=2)
    rest = dict(intermediate_size=58, num_hidden_layers=3, vocab_size=VOCAB, sliding_window=window)
    kinds = ["sliding_attention", "full_attention", "sliding_attention"]
    return _build(tf.Gemma3TextConfig(**sizes, **rest, layer_types=kinds))


def gemma3n(window=5):
    """The last two of five layers use the keys and values of earlier ones."""
    sizes = dict(hidden_size=66, head_dim=22, num_attention_heads=6, num_key_value_heads=2)
    per_layer = dict(vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=14)
    kinds = ["sliding_attention", "full_attention"]
    kinds = [*kinds, "sliding_attention", *kinds]
    rest = dict(intermediate_size=58, num_hidden_layers=5, num_kv_shared_layers=2, laurel_rank=10)
    rest |= dict(vocab_size=VOCAB, sliding_window=window, layer_types=kinds)
    return _build(tf.Gemma3nTextConfig(**sizes, **per_layer, **rest))


def gemma4(window=5):
    """Local and full layers have different numbers of key/value heads, and different widths."""
    sizes = dict(hidden_size=66, head_dim=22, num_attention_heads=6, num_key_value_heads=3)
    sizes |= dict(global_head_dim=32, num_global_key_value_heads=2, attention_k_eq_v=True)
    per_layer = dict(vocab_size_per_layer_input=VOCAB, hidden_size_per_layer_input=14)
    kinds = ["sliding_attention", "full_attention"] * 2
    rest = dict(intermediate_size=58, num_hidden_layers=4, vocab_size=VOCAB)
    rest |= dict(sliding_window=window, layer_types=kinds)
    return _build(tf.Gemma4TextConfig(**sizes, **per_layer, **rest))


def deepseek_v3():
    latent = dict(kv_lora_rank=8, q_lora_rank=14, qk_rope_head_dim=4, qk_nope_head_dim=8)
    experts = dict(n_routed_experts=4, num_experts_per_tok=2, n_group=1, topk_group=1)
    sizes = dict(hidden_size=66, num_attention_heads=3, num_key_value_heads=3, v_head_dim=8)
    rest = dict(intermediate_size=58, moe_intermediate_size=26, num_hidden_layers=2)
    return _build(tf.DeepseekV3Config(**latent, **experts, **sizes, **rest, vocab_size=VOCAB))


def qwen3_next():
    sizes = dict(hidden_size=68, head_dim=22, num_attention_heads=6, num_key_value_heads=2)
    linear = dict(linear_num_key_heads=2, linear_num_value_heads=4)
    linear |= dict(linear_key_head_dim=14, linear_value_head_dim=14)
    experts = dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=28)
    experts |= dict(shared_expert_intermediate_size=28, intermediate_size=60)
    kinds = ["linear_attention", "full_attention", "linear_attention"]
    rest = dict(num_hidden_layers=3, vocab_size=VOCAB, layer_types=kinds)
    return _build(tf.Qwen3NextConfig(**sizes, **linear, **experts, **rest))


def gpt_oss(window=5):
    sizes = dict(hidden_size=72, head_dim=22, num_attention_heads=6, num_key_value_heads=2)
    experts = dict(num_local_experts=4, num_experts_per_tok=2, intermediate_size=56)
    kinds = ["sliding_attention", "full_attention"]
    rest = dict(num_hidden_layers=2, vocab_size=VOCAB, sliding_window=window, layer_types=kinds)
    return _build(tf.GptOssConfig(**sizes, **experts, **rest))


RECORDED = [llama, gpt2, gpt_neox, mistral, gemma3, deepseek_v3, qwen3_next, gpt_oss]


def in_dtype(build, dtype):
    """A model in another dtype; the experts' grouped kernels support few dtypes and sizes."""
    model = build()
    if build in (qwen3_next, gpt_oss):
        model.set_experts_implementation("eager")
    return model.to(dtype)


def double(build):
    return in_dtype(build, torch.float64)


def bloom():
    return _build(tf.BloomConfig(hidden_size=66, n_head=3, n_layer=2, vocab_size=VOCAB))


def falcon():
    sizes = dict(hidden_size=66, num_attention_heads=3, num_hidden_layers=2)
    return _build(tf.FalconConfig(**sizes, vocab_size=VOCAB))


def mpt():
    return _build(tf.MptConfig(d_model=66, n_heads=3, n_layers=2, vocab_size=VOCAB))


def gpt_neo():
    kinds = [[["global"], 2]]
    sizes = dict(hidden_size=66, num_heads=3, num_layers=2, attention_types=kinds)
    return _build(tf.GPTNeoConfig(**sizes, vocab_size=VOCAB))


def mamba():
    sizes = dict(hidden_size=66, state_size=7, num_hidden_layers=2)
    return _build(tf.MambaConfig(**sizes, vocab_size=VOCAB))


def t5():
    sizes = dict(d_model=66, d_kv=22, num_heads=3, num_layers=2, d_ff=58)
    return tf.T5ForConditionalGeneration(tf.T5Config(**sizes, vocab_size=VOCAB)).eval()


REFUSED = [bloom, falcon, mpt, gpt_neo, mamba, t5]


def prompt(n_tokens, n_batch=1, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(5, VOCAB, (n_batch, n_tokens), generator=generator)


@torch.no_grad()
def plain_loop(model, ids, n):
    for _ in range(n):
        new = model(ids, use_cache=False).logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], dim=-1)
    return ids


@torch.no_grad()
def cached_loop(model, ids, n):
    out = model(ids, use_cache=True)
    for step in range(n):
        new = out.logits[:, -1:].argmax(-1)
        ids = torch.cat([ids, new], dim=-1)
        if step < n - 1:
            out = model(new, cache=out.cache, use_cache=True)
    return ids


def record_generate(model, ids, n, keep, layers=None, **options):
    """A recording of n tokens that the library generates."""
    with record(model, keep=keep, layers=layers) as run:
        model.generate(ids, max_new_tokens=n, do_sample=False, **options)
    return run
