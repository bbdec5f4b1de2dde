"""A BERT of Hugging Face's transformers, tiny and with random weights: one graph, and the same output."""
import torch
from transformers import BertConfig, BertModel

import framejit

torch.manual_seed(0)
config = BertConfig(vocab_size=1000, hidden_size=64, num_hidden_layers=2, num_attention_heads=4, intermediate_size=128)
model = BertModel(config).eval()
fast = framejit.optimize(model)

tokens = torch.randint(0, 1000, (2, 16))
with torch.no_grad():
    explanation = framejit.explain(model)(tokens)
    expected, got = model(tokens).last_hidden_state, fast(tokens).last_hidden_state

print(
    f"{len(explanation.graphs)} graph of {explanation.graphs[0].n_ops} operations, {len(explanation.findings)} graph "
    "breaks"
)
print("equal to eager but for rounding:", torch.allclose(got, expected, atol=1e-5))
