"""Text generation with sampling, by the `generate` of transformers, from a tiny model with random weights."""
import torch

import torchvision_shim  # noqa: F401  lets a torchvision that was built for another torch be imported

# isort: split
from transformers import GPT2Config, GPT2LMHeadModel

torch.manual_seed(0)
config = GPT2Config(
    vocab_size=64, n_positions=64, n_embd=32, n_layer=2, n_head=2, bos_token_id=1, eos_token_id=2, pad_token_id=0
)
model = GPT2LMHeadModel(config).eval()
tokens = model.generate(torch.tensor([[1, 5, 9]]), do_sample=True, top_k=20, temperature=0.8, max_new_tokens=8)
print(tuple(tokens.shape)[0], int(tokens.shape[1]) <= 11)
