"""The models and programs of the zoo: each is a function that makes a program, its arguments and keyword arguments.
Weights are random, sizes small."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.functional as F
from capture import DEEP, VIT, ids, image, timm_model, torchvision_model, transformers_model
from torch import nn

Program = tuple[Callable[..., Any], tuple[Any, ...], dict[str, Any]]
TWO = {**DEEP, "num_hidden_layers": 2}
CAUSAL = {**TWO, "use_cache": False}
SMALL_VIT = {**VIT, "num_hidden_layers": 2}


@dataclass
class Entry:
    """`data_decides`: the numbers in tensors choose what the program does next, so that one graph can't be asked for.

    `tolerance` is for libraries that choose other arithmetic where `torch.compiler.is_compiling()`.
    """

    make: Callable[[], Program]
    data_decides: bool = False
    tolerance: float = 0.0


ZOO: dict[str, Entry] = {}


def add(name: str, make: Callable[[], Program], data_decides: bool = False) -> None:
    ZOO[name] = Entry(make, data_decides)


def program(fn: Callable[[], Program] | None = None, *, data_decides: bool = False) -> Any:
    def register(fn: Callable[[], Program]) -> Callable[[], Program]:
        add(fn.__name__, fn, data_decides)
        return fn

    return register if fn is None else register(fn)


# ---- transformers --------------------------------------------------------------------------------------------------
def text(
    name: str, model: str, config: str, inputs: Callable[[], dict[str, Any]] = lambda: {"input_ids": ids()},
    **settings: Any,
) -> None:
    add(name, lambda: (transformers_model(model, config, **settings), (), inputs()))


def encoder_decoder() -> dict[str, Any]:
    return {"input_ids": ids(), "decoder_input_ids": ids(8)}


def pixels() -> dict[str, Any]:
    return {"pixel_values": torch.randn(1, 3, 64, 64)}


text("bert", "BertModel", "BertConfig", **TWO)
text("bert_masked_lm", "BertForMaskedLM", "BertConfig", lambda: {"input_ids": ids(), "labels": ids()}, **TWO)
text("roberta", "RobertaModel", "RobertaConfig", **TWO)
text("electra", "ElectraModel", "ElectraConfig", embedding_size=64, **TWO)
text("distilbert", "DistilBertModel", "DistilBertConfig", vocab_size=512, dim=64, n_layers=2, n_heads=4, hidden_dim=128)
text("albert", "AlbertModel", "AlbertConfig", embedding_size=32, **TWO)
text("deberta_v2", "DebertaV2Model", "DebertaV2Config", relative_attention=True, pos_att_type=["p2c", "c2p"], **TWO)
text("mpnet", "MPNetModel", "MPNetConfig", **TWO)
text("modernbert", "ModernBertModel", "ModernBertConfig", pad_token_id=0, **TWO)
text("gpt2", "GPT2LMHeadModel", "GPT2Config", vocab_size=512, n_embd=64, n_layer=2, n_head=4, use_cache=False)
text(
    "gpt_neo",
    "GPTNeoModel",
    "GPTNeoConfig",
    vocab_size=512,
    hidden_size=64,
    num_layers=2,
    num_heads=4,
    attention_types=[[["global", "local"], 1]],
    use_cache=False,
)
text("gpt_neox", "GPTNeoXForCausalLM", "GPTNeoXConfig", **CAUSAL)
text(
    "gptj", "GPTJForCausalLM", "GPTJConfig", vocab_size=512, n_embd=64, n_layer=2, n_head=4, rotary_dim=8,
    use_cache=False,
)
text(
    "opt",
    "OPTForCausalLM",
    "OPTConfig",
    vocab_size=512,
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    ffn_dim=128,
    word_embed_proj_dim=64,
    use_cache=False,
)
text("bloom", "BloomForCausalLM", "BloomConfig", vocab_size=512, hidden_size=64, n_layer=2, n_head=4, use_cache=False)
text("falcon", "FalconForCausalLM", "FalconConfig", **CAUSAL)
text("llama", "LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, **CAUSAL)
text("llama_with_cache", "LlamaForCausalLM", "LlamaConfig", num_key_value_heads=2, **TWO)
text("mistral", "MistralForCausalLM", "MistralConfig", num_key_value_heads=2, sliding_window=8, **CAUSAL)
text("mixtral", "MixtralForCausalLM", "MixtralConfig", num_key_value_heads=2, num_local_experts=4, **CAUSAL)
text("qwen2", "Qwen2ForCausalLM", "Qwen2Config", num_key_value_heads=2, **CAUSAL)
text("qwen3", "Qwen3ForCausalLM", "Qwen3Config", num_key_value_heads=2, head_dim=16, **CAUSAL)
text("gemma2", "Gemma2ForCausalLM", "Gemma2Config", num_key_value_heads=2, head_dim=16, **CAUSAL)
text("phi", "PhiForCausalLM", "PhiConfig", **CAUSAL)
text("phi3", "Phi3ForCausalLM", "Phi3Config", num_key_value_heads=2, pad_token_id=0, **CAUSAL)
text("stablelm", "StableLmForCausalLM", "StableLmConfig", num_key_value_heads=2, **CAUSAL)
text(
    "mamba", "MambaForCausalLM", "MambaConfig", vocab_size=512, hidden_size=64, num_hidden_layers=2, state_size=8,
    use_cache=False,
)
text(
    "mamba2",
    "Mamba2ForCausalLM",
    "Mamba2Config",
    vocab_size=512,
    hidden_size=64,
    num_hidden_layers=2,
    state_size=8,
    num_heads=8,
    head_dim=16,
    n_groups=2,
    chunk_size=8,
    use_cache=False,
)
text(
    "t5", "T5Model", "T5Config", encoder_decoder, vocab_size=512, d_model=64, d_ff=128, d_kv=16, num_layers=2,
    num_heads=4, use_cache=False,
)
text(
    "bart",
    "BartModel",
    "BartConfig",
    encoder_decoder,
    vocab_size=512,
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    use_cache=False,
)
text(
    "whisper",
    "WhisperModel",
    "WhisperConfig",
    lambda: {"input_features": torch.randn(1, 80, 64), "decoder_input_ids": ids(8)[:1]},
    vocab_size=512,
    d_model=64,
    encoder_layers=2,
    decoder_layers=2,
    encoder_attention_heads=4,
    decoder_attention_heads=4,
    encoder_ffn_dim=128,
    decoder_ffn_dim=128,
    max_source_positions=32,
    pad_token_id=0,
    use_cache=False,
)
text(
    "wav2vec2", "Wav2Vec2Model", "Wav2Vec2Config", lambda: {"input_values": torch.randn(1, 2000)},
    num_feat_extract_layers=7, conv_dim=(32,) * 7, **TWO,
)
text("vit", "ViTModel", "ViTConfig", pixels, **SMALL_VIT)
text("deit", "DeiTModel", "DeiTConfig", pixels, **SMALL_VIT)
text("beit", "BeitModel", "BeitConfig", pixels, **SMALL_VIT)
text("dinov2", "Dinov2Model", "Dinov2Config", pixels, **SMALL_VIT)
text(
    "swin", "SwinModel", "SwinConfig", pixels, image_size=64, patch_size=4, embed_dim=16, depths=[2, 2],
    num_heads=[2, 4], window_size=4,
)
text("segformer", "SegformerModel", "SegformerConfig", pixels, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1])
text("convnext", "ConvNextModel", "ConvNextConfig", pixels, hidden_sizes=[16, 32, 64, 64], depths=[1, 1, 1, 1])
text(
    "clip", "CLIPModel", "CLIPConfig", lambda: {**pixels(), "input_ids": ids()}, text_config=TWO,
    vision_config=SMALL_VIT,
)
text(
    "perceiver",
    "PerceiverModel",
    "PerceiverConfig",
    lambda: {"inputs": torch.randn(2, 16, 64)},
    d_model=64,
    d_latents=32,
    num_latents=8,
    num_self_attends_per_block=2,
    num_self_attention_heads=4,
    num_cross_attention_heads=4,
)

# ---- torchvision and timm ------------------------------------------------------------------------------------------
for _name in (
    "resnet18",
    "vgg11_bn",
    "alexnet",
    "squeezenet1_1",
    "mobilenet_v2",
    "mobilenet_v3_small",
    "shufflenet_v2_x0_5",
    "mnasnet0_5",
    "densenet121",
    "regnet_y_400mf",
    "efficientnet_b0",
    "convnext_tiny",
    "swin_t",
    "googlenet",
):
    add(
        _name,
        lambda name=_name: (
            torchvision_model(name, num_classes=10, **({"init_weights": False} if name == "googlenet" else {})),
            (image(64),),
            {},
        ),
    )
for _name in ("efficientnet_b0", "convnext_tiny", "swin_t"):  # stochastic depth does something in training only
    add(
        f"{_name}_training",
        lambda name=_name: (torchvision_model(name, num_classes=10).train(), (torch.randn(2, 3, 64, 64),), {}),
    )
add("maxvit_t", lambda: (torchvision_model("maxvit_t", num_classes=10, input_size=(224, 224)), (image(224),), {}))
for _name in ("efficientnet_lite0", "mixer_s32_224", "regnetx_002", "ghostnet_050", "levit_128s", "resnest14d"):
    size = 224 if _name in ("mixer_s32_224", "levit_128s") else 64
    add(f"timm_{_name}", lambda name=_name, size=size: (timm_model(name), (image(size),), {}))


# ---- programs ------------------------------------------------------------------------------------------------------
@program
def beam_search() -> Program:
    embedding, cell, head = nn.Embedding(20, 16), nn.GRUCell(16, 16), nn.Linear(16, 20)

    def search(state: torch.Tensor, beams: int, steps: int) -> tuple[torch.Tensor, torch.Tensor]:
        batch = state.shape[0]
        state = state.repeat_interleave(beams, 0)
        tokens = torch.zeros(batch * beams, 1, dtype=torch.long)
        scores = torch.full((batch, beams), -math.inf)
        scores[:, 0] = 0
        for _ in range(steps):
            state = cell(embedding(tokens[:, -1]), state)
            candidates = scores.unsqueeze(-1) + head(state).log_softmax(-1).view(batch, beams, -1)
            scores, chosen = candidates.view(batch, -1).topk(beams)
            origin = (torch.arange(batch).unsqueeze(1) * beams + chosen // 20).view(-1)
            tokens = torch.cat([tokens[origin], (chosen % 20).view(-1, 1)], 1)
            state = state[origin]
        return tokens.view(batch, beams, -1), scores

    return torch.no_grad()(search), (torch.randn(2, 16), 3, 6), {}


@program
def mixture_of_experts() -> Program:
    class Mixture(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate = nn.Linear(16, 4)
            self.experts = nn.ModuleList(
                nn.Sequential(nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16)) for _ in range(4)
            )

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, dict[str, torch.Tensor]]:
            weights, chosen = self.gate(x).softmax(-1).topk(2, dim=-1)
            mask = F.one_hot(chosen, len(self.experts)).to(x.dtype)
            combine = torch.einsum("bk,bke->be", weights, mask)
            out = sum(combine[:, i : i + 1] * expert(x) for i, expert in enumerate(self.experts))
            return out, {"load": mask.sum((0, 1)), "importance": combine.sum(0)}

    return Mixture(), (torch.randn(10, 16),), {}


@program(data_decides=True)
def sparse_mixture_of_experts() -> Program:
    gate, experts = nn.Linear(16, 4), nn.ModuleList(nn.Linear(16, 16) for _ in range(4))

    def forward(x: torch.Tensor) -> torch.Tensor:
        weights, chosen = gate(x).softmax(-1).topk(2)
        out = torch.zeros_like(x)
        for i, expert in enumerate(experts):
            rows, place = torch.where(chosen == i)
            out.index_add_(0, rows, expert(x[rows]) * weights[rows, place, None])
        return out

    return torch.no_grad()(forward), (torch.randn(10, 16),), {}


@program
def detection_decoding() -> Program:
    """Boxes from anchors and offsets, the best of each class, and their overlaps."""

    def decode(
        offsets: torch.Tensor, logits: torch.Tensor, anchors: torch.Tensor, k: int = 5
    ) -> dict[str, torch.Tensor]:
        sizes = anchors[:, 2:] - anchors[:, :2]
        centres = anchors[:, :2] + sizes / 2 + offsets[:, :2] * sizes
        sizes = sizes * offsets[:, 2:].clamp(max=math.log(1000 / 16)).exp()
        boxes = torch.cat([centres - sizes / 2, centres + sizes / 2], -1).clamp(0, 64)
        scores, index = logits.sigmoid().T.topk(k)
        best = boxes[index]
        low = torch.maximum(best[:, :, None, :2], best[:, None, :, :2])
        high = torch.minimum(best[:, :, None, 2:], best[:, None, :, 2:])
        overlap = (high - low).clamp(min=0).prod(-1)
        area = (best[..., 2:] - best[..., :2]).prod(-1)
        iou = overlap / (area[:, :, None] + area[:, None, :] - overlap + 1e-6)
        keep = ~((iou > 0.5) & torch.ones(k, k, dtype=torch.bool).tril(-1)).any(-1)
        return {"boxes": best, "scores": scores * keep, "keep": keep}

    return decode, (torch.randn(50, 4), torch.randn(50, 3), torch.rand(50, 4) * 32), {}


@program(data_decides=True)
def greedy_suppression() -> Program:
    def suppress(boxes: torch.Tensor, scores: torch.Tensor, threshold: float) -> list[int]:
        kept: list[int] = []
        order = scores.argsort(descending=True)
        while order.numel():
            first = order[0]
            kept.append(int(first))
            rest = order[1:]
            low, high = (
                torch.maximum(boxes[rest, :2], boxes[first, :2]),
                torch.minimum(boxes[rest, 2:], boxes[first, 2:]),
            )
            order = rest[(high - low).clamp(min=0).prod(-1) < threshold]
        return kept

    return suppress, (torch.rand(6, 4) * 10, torch.rand(6), 4.0), {}


@program
def diffusion_sampling() -> Program:
    model = nn.Sequential(nn.Linear(17, 32), nn.SiLU(), nn.Linear(32, 16))

    def sample(x: torch.Tensor, steps: int = 8) -> torch.Tensor:
        betas = torch.linspace(1e-4, 0.02, steps)
        products = torch.cumprod(1 - betas, 0)
        for t in reversed(range(steps)):
            time = torch.full((x.shape[0], 1), t / steps)
            noise = model(torch.cat([x, time], 1))
            x = (x - betas[t] / (1 - products[t]).sqrt() * noise) / (1 - betas[t]).sqrt()
            if t > 0:
                x = x + betas[t].sqrt() * torch.randn_like(x)
        return x

    return torch.no_grad()(sample), (torch.randn(4, 16),), {}


@program
def message_passing() -> Program:
    class Layer(nn.Module):
        def __init__(self, width: int) -> None:
            super().__init__()
            self.message, self.update = nn.Linear(2 * width, width), nn.GRUCell(width, width)

        def forward(self, x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
            source, target = edges
            messages = self.message(torch.cat([x[source], x[target]], -1)).relu()
            total = torch.zeros_like(x).index_add_(0, target, messages)
            degree = (
                torch.zeros(x.shape[0], 1).scatter_add_(0, target[:, None], torch.ones(target.shape[0], 1)).clamp(min=1)
            )
            return self.update(total / degree, x)

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layers = nn.ModuleList(Layer(16) for _ in range(3))

        def forward(self, x: torch.Tensor, edges: torch.Tensor, graph: torch.Tensor) -> torch.Tensor:
            for layer in self.layers:
                x = x + layer(x, edges)
            return torch.zeros(2, 16).index_reduce_(0, graph, x, "amax", include_self=False)

    return Network(), (torch.randn(8, 16), torch.randint(0, 8, (2, 20)), torch.arange(8) // 4), {}


@program
def graph_attention() -> Program:
    project, score = nn.Linear(16, 16), nn.Linear(32, 1)

    def forward(x: torch.Tensor, edges: torch.Tensor) -> torch.Tensor:
        h, (source, target) = project(x), edges.unbind(0)
        logits = F.leaky_relu(score(torch.cat([h[source], h[target]], 1))).squeeze(1)
        top = torch.full((x.shape[0],), -math.inf).scatter_reduce_(0, target, logits, "amax")
        weights = (logits - top[target]).exp()
        total = torch.zeros(x.shape[0]).scatter_add_(0, target, weights)
        return torch.zeros_like(h).index_add_(0, target, h[source] * (weights / total[target])[:, None])

    return torch.no_grad()(forward), (torch.randn(8, 16), torch.randint(0, 8, (2, 20))), {}


@program
def policy_rollout() -> Program:
    @dataclass
    class Step:
        state: torch.Tensor
        action: torch.Tensor
        reward: torch.Tensor

    policy = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 2))

    def rollout(state: torch.Tensor, horizon: int = 6, discount: float = 0.9) -> tuple[torch.Tensor, torch.Tensor]:
        steps: list[Step] = []
        for _ in range(horizon):
            logits = policy(state)
            action = (torch.rand(state.shape[0]) < logits.softmax(-1)[:, 1]).long()
            push = action.float() * 2 - 1
            state = state + 0.1 * torch.stack([state[:, 1], push, state[:, 3], -push], 1)
            steps.append(Step(state, action, -state.square().sum(1)))
        returns, total = [], torch.zeros(state.shape[0])
        for step in reversed(steps):
            total = step.reward + discount * total
            returns.insert(0, total)
        return torch.stack(returns), torch.stack([s.action for s in steps])

    return torch.no_grad()(rollout), (torch.randn(3, 4),), {}


@program
def lstm() -> Program:
    return nn.LSTM(8, 16, num_layers=2, bidirectional=True, batch_first=True).eval(), (torch.randn(2, 5, 8),), {}


@program
def gru_by_hand() -> Program:
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gates, self.candidate = nn.Linear(24, 32), nn.Linear(24, 16)

        def forward(self, x: torch.Tensor, h: torch.Tensor | None = None) -> tuple[torch.Tensor, torch.Tensor]:
            h = x.new_zeros(x.shape[0], 16) if h is None else h
            outputs = []
            for step in x.unbind(1):
                z, r = self.gates(torch.cat([step, h], -1)).sigmoid().chunk(2, -1)
                h = (1 - z) * h + z * self.candidate(torch.cat([step, r * h], -1)).tanh()
                outputs.append(h)
            return torch.stack(outputs, 1), h

    return Recurrent(), (torch.randn(2, 6, 8),), {}


@program
def sequence_to_sequence() -> Program:
    return (
        nn.Transformer(16, 2, 2, 2, 32, batch_first=True).eval(),
        (torch.randn(2, 6, 16), torch.randn(2, 4, 16)),
        {
            "tgt_mask": nn.Transformer.generate_square_subsequent_mask(4),
            "tgt_is_causal": True,  # else the mask's numbers decide whether it is one
        },
    )


@program
def rotary_attention() -> Program:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv, self.out = nn.Linear(32, 96), nn.Linear(32, 32)
            self.register_buffer("frequencies", 1.0 / 10000 ** (torch.arange(0, 8, 2) / 8))

        def rotate(self, x: torch.Tensor) -> torch.Tensor:
            angles = torch.outer(torch.arange(x.shape[-2]), self.frequencies)
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack([a * angles.cos() - b * angles.sin(), a * angles.sin() + b * angles.cos()], -1).flatten(
                -2
            )

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            q, k, v = (t.unflatten(-1, (4, 8)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
            y = F.scaled_dot_product_attention(self.rotate(q), self.rotate(k), v, is_causal=True)
            return self.out(y.transpose(1, 2).flatten(-2))

    return Attention(), (torch.randn(2, 6, 32),), {}


@program
def linear_attention() -> Program:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        q, k = F.elu(q) + 1, F.elu(k) + 1
        state, norm = torch.cumsum(torch.einsum("btd,bte->btde", k, v), 1), torch.cumsum(k, 1)
        return torch.einsum("btd,btde->bte", q, state) / (q * norm).sum(-1, keepdim=True)

    return attend, tuple(torch.randn(3, 2, 7, 8)), {}


@program
def sliding_window_attention() -> Program:
    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, window: int = 3) -> torch.Tensor:
        n = q.shape[-2]
        place = torch.arange(n)
        mask = ((place[:, None] - place[None]) >= 0) & ((place[:, None] - place[None]) < window)
        bias = -(place[:, None] - place[None]).abs() * 0.5
        scores = q @ k.mT / math.sqrt(q.shape[-1]) + bias
        return scores.masked_fill(~mask, -math.inf).softmax(-1) @ v

    return attend, tuple(torch.randn(3, 2, 7, 8)), {}


@program
def generation_with_a_cache() -> Program:
    """Greedy decoding with keys and values in a buffer that is written in place."""
    embedding, qkv, head = nn.Embedding(20, 16), nn.Linear(16, 48), nn.Linear(16, 20)

    def generate(token: torch.Tensor, steps: int) -> torch.Tensor:
        keys, values = torch.zeros(token.shape[0], steps, 16), torch.zeros(token.shape[0], steps, 16)
        tokens = [token]
        for i in range(steps):
            q, k, v = qkv(embedding(tokens[-1])).chunk(3, -1)
            keys[:, i], values[:, i] = k, v
            weights = torch.einsum("bd,btd->bt", q, keys[:, : i + 1]).softmax(-1)
            tokens.append(head(torch.einsum("bt,btd->bd", weights, values[:, : i + 1])).argmax(-1))
        return torch.stack(tokens, 1)

    return torch.no_grad()(generate), (torch.tensor([1, 2]), 5), {}


@program
def selective_scan() -> Program:
    def scan(x: torch.Tensor, delta: torch.Tensor, a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> torch.Tensor:
        decay = torch.exp(delta.unsqueeze(-1) * a)
        inputs = (delta * x).unsqueeze(-1) * b.unsqueeze(2)
        state, out = x.new_zeros(*x.shape[::2], a.shape[1]), []
        for t in range(x.shape[1]):
            state = decay[:, t] * state + inputs[:, t]
            out.append((state * c[:, t].unsqueeze(1)).sum(-1))
        return torch.stack(out, 1)

    return (
        scan,
        (torch.randn(2, 6, 8), torch.rand(2, 6, 8), -torch.rand(8, 4), torch.randn(2, 6, 4), torch.randn(2, 6, 4)),
        {},
    )


@program
def variational_autoencoder() -> Program:
    class Autoencoder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.encoder, self.decoder = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 8)), nn.Linear(4, 16)

        def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
            mean, log_variance = self.encoder(x).chunk(2, -1)
            q = torch.distributions.Normal(mean, (log_variance / 2).exp(), validate_args=False)
            z = q.rsample()
            loss = (
                F.mse_loss(self.decoder(z), x)
                + torch.distributions.kl_divergence(q, torch.distributions.Normal(0.0, 1.0, validate_args=False)).mean()
            )
            return {"loss": loss, "z": z}

    return Autoencoder(), (torch.randn(4, 16),), {}


@program
def unet() -> Program:
    class Block(nn.Sequential):
        def __init__(self, a: int, b: int) -> None:
            super().__init__(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(4, b), nn.SiLU())

    class UNet(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.down, self.up = nn.ModuleList([Block(3, 8), Block(8, 16)]), nn.ModuleList([Block(32, 8), Block(16, 8)])
            self.middle, self.last = Block(16, 16), nn.Conv2d(8, 3, 1)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            skips = []
            for block in self.down:
                x = block(x)
                skips.append(x)
                x = F.max_pool2d(x, 2)
            x = self.middle(x)
            for block in self.up:
                x = block(torch.cat([F.interpolate(x, scale_factor=2, mode="nearest"), skips.pop()], 1))
            return self.last(x)

    return UNet(), (torch.randn(1, 3, 16, 16),), {}


@program
def training_step() -> Program:
    model = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 3))

    def loss(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        logits = model(x)
        return F.cross_entropy(logits, y, label_smoothing=0.1) + 1e-3 * sum(
            p.square().sum() for p in model.parameters()
        )

    return loss, (torch.randn(5, 8), torch.randint(0, 3, (5,))), {}


@program
def contrastive_loss() -> Program:
    def loss(a: torch.Tensor, b: torch.Tensor, temperature: float = 0.1) -> torch.Tensor:
        a, b = F.normalize(a, dim=-1), F.normalize(b, dim=-1)
        logits = a @ b.T / temperature
        target = torch.arange(a.shape[0], device=a.device)
        return (F.cross_entropy(logits, target) + F.cross_entropy(logits.T, target)) / 2

    return loss, (torch.randn(4, 8), torch.randn(4, 8)), {}


@program
def vector_quantisation() -> Program:
    class Quantise(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor, book: torch.Tensor) -> torch.Tensor:
            return book[torch.cdist(x, book).argmin(-1)]

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor, None]:
            return grad, None

    encoder, book = nn.Linear(8, 4), nn.Parameter(torch.randn(6, 4))

    def forward(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        z = encoder(x)
        q = Quantise.apply(z, book)
        return q, F.mse_loss(q, z.detach()) + 0.25 * F.mse_loss(z, q.detach())

    return forward, (torch.randn(5, 8),), {}


@program
def conditional_random_field() -> Program:
    def decode(
        emissions: torch.Tensor, transitions: torch.Tensor, mask: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        score, history = emissions[:, 0], []
        for t in range(1, emissions.shape[1]):
            best, came_from = (score[:, :, None] + transitions + emissions[:, t, None]).max(1)
            score = torch.where(mask[:, t, None], best, score)
            history.append(came_from)
        tags = [score.argmax(-1)]
        for came_from in reversed(history):
            tags.append(came_from.gather(1, tags[-1][:, None]).squeeze(1))
        return torch.stack(tags[::-1], 1), score.max(-1).values

    return decode, (torch.randn(2, 5, 3), torch.randn(3, 3), torch.ones(2, 5, dtype=torch.bool)), {}


@program
def k_means() -> Program:
    def cluster(x: torch.Tensor, k: int = 3, steps: int = 4) -> tuple[torch.Tensor, torch.Tensor]:
        centres = x[torch.linspace(0, x.shape[0] - 1, k).long()]
        for _ in range(steps):
            assigned = torch.cdist(x, centres).argmin(1)
            member = F.one_hot(assigned, k).to(x.dtype)
            centres = (member.T @ x) / member.sum(0).clamp(min=1)[:, None]
        return centres, assigned

    return cluster, (torch.randn(20, 2),), {}


@program(data_decides=True)
def newton_until_converged() -> Program:
    def solve(a: torch.Tensor, tolerance: float = 1e-5) -> tuple[torch.Tensor, int]:
        x, steps = a.clone(), 0
        while (x * x - a).abs().max() > tolerance and steps < 20:
            x, steps = (x + a / x) / 2, steps + 1
        return x, steps

    return solve, (torch.rand(4) + 1,), {}


@program
def runge_kutta() -> Program:
    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))

        def forward(self, t: float, y: torch.Tensor) -> torch.Tensor:
            return self.net(y) * math.cos(t)

    field = Field()

    def integrate(y: torch.Tensor, times: tuple[float, ...]) -> torch.Tensor:
        path = [y]
        for start, end in zip(times, times[1:]):
            h = end - start
            k1 = field(start, y)
            k2 = field(start + h / 2, y + h / 2 * k1)
            k3 = field(start + h / 2, y + h / 2 * k2)
            k4 = field(end, y + h * k3)
            y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
            path.append(y)
        return torch.stack(path)

    return torch.no_grad()(integrate), (torch.randn(3, 2), (0.0, 0.1, 0.3, 0.6)), {}


@program
def augmentation() -> Program:
    def augment(images: torch.Tensor) -> torch.Tensor:
        angle = (torch.rand(images.shape[0]) - 0.5) * math.pi / 4
        zero = torch.zeros_like(angle)
        matrix = torch.stack(
            [torch.stack([angle.cos(), -angle.sin(), zero], -1), torch.stack([angle.sin(), angle.cos(), zero], -1)], 1
        )
        images = F.grid_sample(
            images, F.affine_grid(matrix, list(images.shape), align_corners=False), align_corners=False
        )
        flip = torch.rand(images.shape[0], 1, 1, 1) < 0.5
        images = torch.where(flip, images.flip(-1), images)
        return (images - images.mean((2, 3), keepdim=True)) / images.std((2, 3), keepdim=True)

    return augment, (torch.rand(2, 3, 8, 8),), {}


ZOO["mamba"].tolerance = 1e-5  # a parallel scan
