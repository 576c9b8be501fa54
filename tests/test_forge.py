"""The forge gives the library's numbers, in whatever pieces the text is fed."""

import pytest
import small
import torch
from transformers import DynamicCache

from kvviz.forge import Forge, ForgeConfig, KVCache, KVEntry, causal_mask

GATE = 1e-5  # the largest gap allowed
PROMPTS = """The first law of motion states
Water boils at
def fibonacci(n):
In 1969, two astronauts
Why is the sky blue?""".splitlines()


def gap(ours, right):
    """The largest difference, divided by the largest number of the right result."""
    assert ours.shape == right.shape
    return float((ours - right).abs().max() / right.abs().max())


def fed(forge, ids, sizes):
    """Every row's logits and the cache, after feeding the text in pieces of these sizes."""
    cache = KVCache(len(forge.layers))
    return torch.cat([forge(piece, cache) for piece in ids.split(sizes, dim=1)], dim=1), cache


# -- against the library ---------------------------------------------------------------------------

SHAPES = {
    "a head each": dict(num_key_value_heads=6),
    "three over one": dict(num_key_value_heads=2),
    "six over one": dict(num_key_value_heads=1),
    "heads as wide as hidden / heads": dict(hidden_size=60, head_dim=10),
    "another base and epsilon": dict(rope_theta=5e5, rms_norm_eps=1e-3),
}


def llama(**changes):
    return small.llama(tie_word_embeddings=True, **changes)


@pytest.fixture(params=SHAPES.values(), ids=SHAPES)
def pair(request):
    model = llama(**request.param).requires_grad_(False)
    return model, Forge.from_pretrained(model)


def test_logits_are_the_librarys(pair):
    model, forge = pair
    ids = small.prompt(11, n_batch=2)
    assert gap(forge(ids), model(ids).logits) <= GATE


def test_each_entry_is_the_librarys(pair):
    model, forge = pair
    ids = small.prompt(11, n_batch=2)
    sizes, theirs = [5, 3, 1, 1, 1], DynamicCache(config=model.config)
    logits, ours = fed(forge, ids, sizes)
    expected = [model(piece, cache=theirs).logits for piece in ids.split(sizes, dim=1)]
    assert gap(logits, torch.cat(expected, dim=1)) <= GATE
    for number, layer in enumerate(theirs.layers):
        entry = ours.get(number)
        assert gap(entry.keys, layer.keys) <= GATE and gap(entry.values, layer.values) <= GATE


@pytest.fixture(scope="module")
def generated(default_model):
    """For each prompt: the tokens, logits and cache of the library, and those of the forge."""
    model, tokenizer = default_model
    forge, pairs = Forge.from_pretrained(model), []
    for prompt in PROMPTS:
        ids = tokenizer(prompt, return_tensors="pt").input_ids
        theirs, ours = DynamicCache(config=model.config), KVCache(len(forge.layers))

        def library(ids, cache=theirs):
            with torch.no_grad():
                return model(ids, cache=cache, logits_to_keep=1).logits

        pairs.append([(*_greedy(library, ids), theirs), (*_greedy(forge, ids, ours), ours)])
    return pairs


def _greedy(model, ids, *cache, n=8):
    rows, tokens = [], []
    for _ in range(n):
        rows.append(model(ids, *cache)[:, -1:])
        ids = rows[-1].argmax(-1)
        tokens.append(int(ids))
    return tokens, torch.cat(rows, dim=1)


def test_the_default_models_tokens_are_the_librarys(generated):
    assert [ours[0] for _, ours in generated] == [theirs[0] for theirs, _ in generated]
    assert len({tuple(ours[0]) for _, ours in generated}) == len(PROMPTS)


def test_the_default_models_logits_are_the_librarys(generated):
    assert max(gap(ours[1], theirs[1]) for theirs, ours in generated) <= GATE


def test_the_default_models_cache_is_the_librarys_tensor_by_tensor(generated):
    for (*_, theirs), (*_, ours) in generated:
        for number, layer in enumerate(theirs.layers):
            assert gap(ours.get(number).keys, layer.keys) <= GATE
            assert gap(ours.get(number).values, layer.values) <= GATE


def test_weights_are_shared_and_a_change_of_precision_is_the_forges_own():
    model = llama()
    forge = Forge.from_pretrained(model)
    theirs = {weight.data_ptr() for weight in model.parameters()}
    assert {weight.data_ptr() for weight in forge.parameters()} == theirs
    forge.double()
    assert {weight.dtype for weight in forge.parameters()} == {torch.float64}
    assert {weight.dtype for weight in model.parameters()} == {torch.float32}


YARN = {"rope_type": "yarn", "factor": 4.0, "rope_theta": 1e4}
REFUSED = {
    "model_type 'llama', got GPT2LMHeadModel with 'gpt2'": small.gpt2,
    "model_type 'llama', got MistralForCausalLM": small.mistral,
    "rope_type 'default', got LlamaForCausalLM with 'yarn'": lambda: llama(rope_parameters=YARN),
    "attention_bias False, got .* True": lambda: llama(attention_bias=True),
    "mlp_bias False, got .* True": lambda: llama(mlp_bias=True),
    "hidden_act 'silu', got .* 'gelu'": lambda: llama(hidden_act="gelu"),
    "tie_word_embeddings True, got .* False": lambda: small.llama(tie_word_embeddings=False),
    "a Llama with .*, got LlamaModel": lambda: llama().model,
    "a Llama with .*, got 'llama'": lambda: "llama",
}


@pytest.mark.parametrize(("message", "build"), REFUSED.items())
def test_another_architecture_is_refused_and_the_expected_one_named(message, build):
    with pytest.raises(ValueError, match=f"expected {message}|expected a Llama with {message}"):
        Forge.from_pretrained(build())


# -- against itself ------------------------------------------------------------------------------

PIECES = {"one at a time": [1] * 12, "3+1+2": [3, 1, 2] * 2, "prefill and decode": [6] + [1] * 6}


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("sizes", PIECES.values(), ids=PIECES)
def test_pieces_agree_with_the_whole_at_every_position(sizes, seed):
    forge, ids = Forge.small(seed), small.prompt(12, n_batch=2, seed=seed)
    whole, (pieces, _) = forge(ids), fed(forge, ids, sizes)
    assert gap(pieces, whole) <= GATE
    assert 4 < whole.abs().max() < 40  # logits of order 10
    forge.double()
    assert gap(fed(forge, ids, sizes)[0], forge(ids)) <= 1e-9


def test_the_default_model_agrees_with_itself(default_model):
    model, tokenizer = default_model
    forge = Forge.from_pretrained(model)
    ids = tokenizer(PROMPTS[0], return_tensors="pt").input_ids
    for gate in (GATE, 1e-9):  # in float32, and then in float64
        whole = forge(ids)
        for sizes in ([1] * 6, [3, 1, 2]):
            assert gap(fed(forge, ids, sizes)[0], whole) <= gate
        forge.double()  # a copy: the library's weights stay as they are


def test_two_sequences_are_two_texts():
    forge, ids = Forge.small(), small.prompt(7, n_batch=2)
    both, cache = fed(forge, ids, [3, 4])
    for sequence in (slice(0, 1), slice(1, 2)):
        alone, own = fed(forge, ids[sequence], [3, 4])
        assert gap(both[sequence], alone) <= GATE
        assert gap(cache.get(3).keys[sequence], own.get(3).keys) <= GATE


def test_the_same_seed_gives_the_same_model_and_no_random_number_is_used_up():
    torch.manual_seed(5)
    before = torch.get_rng_state()
    ids = small.prompt(5)
    first, again, other = (Forge.small(seed)(ids) for seed in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert torch.equal(first, again) and gap(other, first) > 0.1


# -- the cache -------------------------------------------------------------------------------------


def test_a_cache_holds_what_was_fed_and_reads_its_length_from_its_tensors():
    forge, cache = Forge.small(), KVCache(4)
    assert (len(cache), cache.held, cache.get(3)) == (4, 0, None) and cache is not None
    for n, held in ((6, 6), (1, 7), (3, 10)):
        forge(small.prompt(n, n_batch=2), cache)
        assert cache.held == held
        for layer in range(4):
            assert cache.get(layer).keys.shape == cache.get(layer).values.shape == (2, 2, held, 14)
    assert repr(cache) == "KVCache(4), 10 tokens held"
    cache.reset()
    assert (len(cache), cache.held, cache.get(0)) == (4, 0, None)


def test_an_empty_cache_is_truthy():
    assert bool(KVCache(4)) is True


def test_update_replaces_and_an_entry_taken_out_stays_as_it_was():
    forge, cache = Forge.small(), KVCache(4)
    forge(small.prompt(6), cache)
    before = cache.get(2)
    copy = KVEntry(*(x.clone() for x in before))
    forge(small.prompt(1), cache)
    assert cache.get(2) is not before and cache.get(2).keys.shape[2] == 7
    assert torch.equal(before.keys, copy.keys) and torch.equal(before.values, copy.values)
    assert torch.equal(cache.get(2).keys[:, :, :6], before.keys)
    cache.update(2, before)
    assert cache.get(2) is before


def test_after_a_reset_the_next_text_starts_at_position_zero():
    forge, cache, ids = Forge.small(), KVCache(4), small.prompt(6)
    forge(small.prompt(9, seed=1), cache)
    cache.reset()
    assert torch.equal(forge(ids, cache), forge(ids))


# -- the five methods ------------------------------------------------------------------------------


def test_one_query_needs_no_mask():
    assert causal_mask(1, 0, 1) is None and causal_mask(1, 6, 7) is None


def test_a_chunk_of_3_on_4_held_is_masked_at_the_bottom_right():
    rows = ["1111100", "1111110", "1111111"]
    expected = torch.tensor([[cell == "1" for cell in row] for row in rows])
    assert torch.equal(causal_mask(3, 4, 7), expected)
    assert torch.equal(causal_mask(3, 0, 3), torch.ones(3, 3).tril().bool())


@pytest.mark.parametrize(("t", "start", "end"), [(3, 4, 8), (3, 4, 3), (0, 4, 4), (2, -1, 1)])
def test_a_mask_of_other_rows_than_were_fed_is_refused(t, start, end):
    with pytest.raises(ValueError, match=f"got {t}, {start} and {end}"):
        causal_mask(t, start, end)


def test_positions_count_on_from_what_is_held():
    forge = Forge.small()
    assert forge.positions(3, 0).tolist() == [0, 1, 2]
    assert forge.positions(1, 6).tolist() == [6]


def test_a_score_depends_on_the_distance_and_position_zero_is_not_rotated():
    forge = Forge.small().double()
    x = torch.randn(2, 1, 3, 1, 14, generator=torch.Generator().manual_seed(0)).double()

    def rotate(x, position):
        return forge.rotate(x, forge.rotation(torch.tensor([position])))

    def score(of_query, of_key):
        return rotate(x[0], of_query) @ rotate(x[1], of_key).transpose(2, 3)

    torch.testing.assert_close(score(5, 2), score(85, 82), rtol=0, atol=1e-4)
    assert (score(5, 2) - score(5, 3)).abs().max() > 0.1
    assert torch.equal(rotate(x[0], 0), x[0])


def test_attend_shows_all_that_attention_sees():
    forge, cache, seen = Forge.small(), KVCache(4), []
    attend = forge.attend

    def watching(layer, query, keys, values, mask):
        output, weights = attend(layer, query, keys, values, mask)
        seen.append((layer, query, keys, values, mask, output, weights))
        return output, weights

    forge.attend = watching
    forge(small.prompt(4), cache)
    forge(small.prompt(3), cache)
    assert [layer for layer, *_ in seen] == [0, 1, 2, 3] * 2
    for _, query, keys, values, mask, output, weights in seen[4:]:
        assert query.shape == output.shape == (1, 6, 3, 14)
        assert keys.shape == values.shape == (1, 2, 7, 14)
        assert weights.shape == (1, 6, 3, 7) and mask.shape == (3, 7)
        torch.testing.assert_close(weights.sum(-1), torch.ones(1, 6, 3))
        assert (weights[..., ~mask] == 0).all()
        # Query heads 0 to 2 read key/value head 0, and 3 to 5 read head 1.
        for head in range(6):
            torch.testing.assert_close(output[:, head], weights[:, head] @ values[:, head // 3])


# -- bad input -------------------------------------------------------------------------------------

IDS = small.prompt(6)
BAD = {
    "tensor of int64, got list": (TypeError, [[1, 2]], None),
    "tensor of int64, got torch.float32": (TypeError, IDS.float(), None),
    r"\(batch, tokens\), 0 to 100, got \(6,\)": (ValueError, IDS[0], None),
    r"\(batch, tokens\), 0 to 100, got \(1, 0\)": (ValueError, IDS[:, :0], None),
    "0 to 100, got .*101": (ValueError, torch.tensor([[101]]), None),
    "0 to 100, got .*-1": (ValueError, torch.tensor([[-1]]), None),
    "a KVCache or None, got DynamicCache": (TypeError, IDS, DynamicCache),
    "a cache of 4 layers, got 3": (ValueError, IDS, lambda: KVCache(3)),
    "batch size 2, as in the cache, got 1": (ValueError, IDS, lambda: filled(5, n_batch=2)),
    "at most 97 tokens, held and fed, got 98": (ValueError, small.prompt(98), None),
    "at most 97 tokens, held and fed, got 99": (ValueError, IDS, lambda: filled(93)),
}


def filled(n_tokens, n_batch=1):
    cache = KVCache(4)
    Forge.small()(small.prompt(n_tokens, n_batch), cache)
    return cache


@pytest.mark.parametrize(("message", "given"), BAD.items(), ids=range(len(BAD)))
def test_bad_input_is_refused_with_what_was_expected(message, given):
    error, ids, cache = given
    with pytest.raises(error, match=f"expected .*{message}"):
        Forge.small()(ids, cache and cache())


def test_the_last_position_can_be_fed():
    assert filled(97).held == ForgeConfig().max_positions == 97


def test_the_config_of_the_default_model_is_read(default_model):
    c = Forge.from_pretrained(default_model[0]).config
    assert (c.n_layers, c.n_heads, c.n_kv_heads, c.head_dim) == (30, 9, 3, 64)
    assert (c.vocab_size, c.hidden_size, c.mlp_size) == (49_152, 576, 1536)
    assert (c.rope_theta, c.max_positions) == (100_000.0, 8192)


class LastFour(KVCache):
    """Keeps the last four tokens, and counts how many were fed."""

    next_position = 0

    def update(self, layer, entry):
        self.next_position += (layer == 0) * (entry.keys.shape[2] - self.held)
        super().update(layer, KVEntry(entry.keys[:, :, -4:], entry.values[:, :, -4:]))


def test_a_cache_that_drops_tokens_says_where_the_next_call_starts():
    """Token by token, it's the same as a mask that hides the dropped columns."""

    class Window(Forge):
        def mask(self, t, pos_start, pos_end, device=None):
            rows, columns = torch.arange(pos_start, pos_end)[:, None], torch.arange(pos_end)
            return (columns <= rows) & (rows - columns < 5)  # itself and the four before it

    forge, windowed, cache = Forge.small(), Window.small(), LastFour(4)
    ids = torch.randint(0, 101, (1, 11), generator=torch.Generator().manual_seed(1))
    one_by_one = torch.cat([forge(token, cache) for token in ids.split(1, dim=1)], dim=1)
    assert cache.held == 4 and cache.next_position == 11
    assert torch.allclose(one_by_one, windowed(ids), atol=1e-4)
