"""Tiny Hugging Face models with random weights: equal to eager, one graph, no recompile on the second call."""
# ruff: noqa: B905
import pytest
import torch

from support import Pair, check

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.model
SIZES = {"hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64}


def bert():
    return transformers.BertModel(transformers.BertConfig(vocab_size=99, **SIZES))


def gpt2(**kw):
    config = transformers.GPT2Config(
        vocab_size=99, n_embd=32, n_layer=2, n_head=2, n_positions=64, bos_token_id=1, eos_token_id=2, **kw
    )
    return transformers.GPT2LMHeadModel(config)


def llama(**kw):
    return transformers.LlamaForCausalLM(
        transformers.LlamaConfig(vocab_size=99, num_key_value_heads=1, max_position_embeddings=64, **SIZES, **kw)
    )


def t5(**kw):
    config = transformers.T5Config(
        vocab_size=99, d_model=32, d_ff=64, d_kv=16, num_layers=2, num_heads=2, decoder_start_token_id=0, **kw
    )
    return transformers.T5Model(config)


def vit():
    return transformers.ViTModel(transformers.ViTConfig(image_size=32, patch_size=8, **SIZES))


def ids(batch=2, length=7):
    return torch.randint(3, 99, (batch, length), generator=torch.Generator().manual_seed(0))


CASES = {
    "BertModel": (bert, lambda: {"input_ids": ids()}),
    "BertModel with a padding mask": (
        bert,
        lambda: {"input_ids": ids(), "attention_mask": (torch.arange(7) < torch.tensor([[7], [4]])).long()},
    ),
    "GPT2LMHeadModel": (lambda: gpt2(use_cache=False), lambda: {"input_ids": ids()}),
    "GPT2LMHeadModel with labels": (lambda: gpt2(use_cache=False), lambda: {"input_ids": ids(), "labels": ids()}),
    "LlamaForCausalLM": (lambda: llama(use_cache=False), lambda: {"input_ids": ids()}),
    "T5Model": (lambda: t5(use_cache=False), lambda: {"input_ids": ids(), "decoder_input_ids": ids(length=4)}),
    "ViTModel": (vit, lambda: {"pixel_values": torch.randn(2, 3, 32, 32, generator=torch.Generator().manual_seed(0))}),
}


@pytest.mark.parametrize("name", CASES)
def test_one_graph_equal_to_eager(name):
    make, inputs = CASES[name]
    with torch.no_grad():
        check(make().eval(), kwargs=inputs(), graphs=1, breaks=0)


@pytest.mark.parametrize("make", [gpt2, llama, t5], ids=lambda f: f.__name__)
def test_with_a_key_value_cache(make):
    inputs = {"input_ids": ids()} | ({"decoder_input_ids": ids(length=4)} if make is t5 else {})
    with torch.no_grad():
        check(make().eval(), kwargs=inputs, graphs=1, breaks=0)


def test_model_called_inside_a_function():
    model = bert().eval()
    with torch.no_grad():
        check(lambda m, i: m(input_ids=i)[0].mean(1), model, ids())


def test_training_mode_gives_the_same_gradients():
    pair = Pair(lambda: gpt2_copy(), atol=1e-6, rtol=1e-5)
    out = pair.call(input_ids=ids(), labels=ids())
    assert out.loss.requires_grad
    for side, fn in ((pair.eager_state, pair.eager), (pair.state, pair.compiled)):
        torch.manual_seed(0)
        fn(input_ids=ids(), labels=ids()).loss.backward()
        assert all(p.grad is not None for p in side.parameters())
    for p, q in zip(pair.eager_state.parameters(), pair.state.parameters()):
        torch.testing.assert_close(p.grad, q.grad)
    assert pair.graphs == 1


def gpt2_copy():
    torch.manual_seed(0)
    return gpt2(use_cache=False).train()


def test_new_sequence_length_makes_one_more_graph():
    with torch.no_grad():
        pair = check(bert().eval(), kwargs={"input_ids": ids()})
        pair.call(input_ids=ids(length=9), captures=True)
        pair.call(input_ids=ids(length=9), captures=False)
        assert pair.graphs == 2
