"""Real models in training, at small sizes and in double precision: the loss, the gradients of all parameters and what
is in buffers are eager's over several steps."""

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import framejit

from support import seed

transformers = pytest.importorskip("transformers")
pytestmark = pytest.mark.model

STEPS = 3
TEXT = {
    "vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 64,
}
CAUSAL = {**TEXT, "use_cache": False, "num_key_value_heads": 1, "max_position_embeddings": 64}
T5 = {
    "vocab_size": 99, "d_model": 32, "d_ff": 64, "d_kv": 16, "num_layers": 2, "num_heads": 2, "use_cache": False,
    "decoder_start_token_id": 0, "pad_token_id": 0,
}
BART = {
    "vocab_size": 99, "d_model": 32, "encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 2,
    "decoder_attention_heads": 2, "encoder_ffn_dim": 64, "decoder_ffn_dim": 64, "use_cache": False,
}
GPT2 = {"vocab_size": 99, "n_embd": 32, "n_layer": 2, "n_head": 2, "n_positions": 64, "use_cache": False}
STAGES = {"hidden_sizes": [8, 16, 16, 32], "depths": [1, 1, 1, 1], "num_labels": 5}
MAMBA = {"vocab_size": 99, "hidden_size": 32, "num_hidden_layers": 2, "state_size": 4, "use_cache": False}


def ids(generator):
    return torch.randint(3, 99, (2, 7), generator=generator)


def text(generator):
    return {"input_ids": ids(generator), "labels": ids(generator)}


def pixels(generator):
    return {
        "pixel_values": torch.randn(2, 3, 32, 32, generator=generator, dtype=torch.float64),
        "labels": torch.randint(5, (2,), generator=generator),
    }


def pretrained(model, config, **settings):
    return lambda: getattr(transformers, model)(getattr(transformers, config)(**settings))


class Recurrent(nn.Module):
    """A language model with an LSTM."""

    def __init__(self):
        super().__init__()
        self.embedding, self.rnn = nn.Embedding(99, 16), nn.LSTM(16, 24, 2, dropout=0.2, batch_first=True)
        self.head = nn.Linear(24, 99)

    def forward(self, input_ids, labels):
        logits = self.head(self.rnn(self.embedding(input_ids))[0])
        return {"loss": F.cross_entropy(logits.flatten(0, 1), labels.flatten()), "logits": logits}


class Residual(nn.Module):
    """Convolutions, batch norms and writes in place, as in torchvision's networks."""

    def __init__(self):
        super().__init__()
        self.stem, self.first = nn.Conv2d(3, 8, 3, 2, 1), nn.Conv2d(8, 8, 3, 1, 1, groups=4)
        self.norms = nn.ModuleList(nn.BatchNorm2d(8) for _ in range(2))
        self.head = nn.Linear(8, 5)

    def forward(self, pixel_values, labels):
        x = F.max_pool2d(F.relu(self.norms[0](self.stem(pixel_values)), inplace=True), 3, 2, 1)
        x = x + F.silu(self.norms[1](self.first(x)), inplace=True)
        logits = self.head(F.adaptive_avg_pool2d(x, 1).flatten(1))
        return {"loss": F.cross_entropy(logits, labels), "logits": logits}


MODELS = {
    "bert": (pretrained("BertForMaskedLM", "BertConfig", **TEXT), text),
    "electra": (pretrained("ElectraForMaskedLM", "ElectraConfig", embedding_size=16, **TEXT), text),
    "albert": (pretrained("AlbertForMaskedLM", "AlbertConfig", embedding_size=16, **TEXT), text),
    "gpt2": (pretrained("GPT2LMHeadModel", "GPT2Config", **GPT2), text),
    "llama": (pretrained("LlamaForCausalLM", "LlamaConfig", **CAUSAL), text),
    "gemma2": (pretrained("Gemma2ForCausalLM", "Gemma2Config", head_dim=16, **CAUSAL), text),
    "t5": (pretrained("T5ForConditionalGeneration", "T5Config", **T5), text),
    "bart": (pretrained("BartForConditionalGeneration", "BartConfig", **BART), text),
    "mamba": (pretrained("MambaForCausalLM", "MambaConfig", **MAMBA), text),
    "vit": (
        pretrained(
            "ViTForImageClassification", "ViTConfig", image_size=32, patch_size=8, num_labels=5,
            **{name: size for name, size in TEXT.items() if name != "vocab_size"},
        ),
        pixels,
    ),
    "convnext": (pretrained("ConvNextForImageClassification", "ConvNextConfig", **STAGES), pixels),
    "resnet": (
        pretrained(
            "ResNetForImageClassification", "ResNetConfig", embedding_size=8, layer_type="basic", **STAGES
        ),
        pixels,
    ),
    "lstm": (Recurrent, text),
    "residual": (Residual, pixels),
}

SINGLE = {"gpt2", "llama", "gemma2", "t5", "mamba"}
"""Those that compute a norm or the loss in single precision, whatever they are given."""


@pytest.mark.parametrize("name", MODELS)
def test_gradients_of_all_parameters(name):
    make, inputs = MODELS[name]
    tolerance = {"rtol": 1e-4, "atol": 2e-6} if name in SINGLE else {"rtol": 1e-7, "atol": 1e-9}
    seed()
    theirs = make().double().train()
    mine = copy.deepcopy(theirs)
    compiled = framejit.optimize(mine)
    for step in range(STEPS):
        given = inputs(torch.Generator().manual_seed(step))
        found = []
        for call, module in ((theirs, theirs), (compiled, mine)):
            seed(step)
            module.zero_grad()
            out = call(**given)
            out["loss"].backward()
            found.append({
                "loss": out["loss"], "logits": out["logits"],
                **{f"gradient of {name}": parameter.grad for name, parameter in module.named_parameters()},
                **{f"buffer {name}": buffer.clone() for name, buffer in module.named_buffers()},
            })
            with torch.no_grad():
                for parameter in module.parameters():
                    if parameter.grad is not None:
                        parameter -= 0.01 * parameter.grad
        for what, other in found[0].items():
            one = found[1][what]
            assert (one is None) == (other is None), f"step {step}: {what}"
            if one is not None:
                torch.testing.assert_close(
                    one, other, **tolerance, msg=f"step {step}: {what}: {one} is not {other}"
                )
    assert {graph.reason for graph in framejit.inspect(compiled).graphs} == {""}
