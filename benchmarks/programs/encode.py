"""Sentences of many lengths through transformers' BERT with random weights, in padded batches."""
import torch
from transformers import BertConfig, BertModel

torch.manual_seed(0)
config = BertConfig(
    vocab_size=500, hidden_size=128, num_hidden_layers=4, num_attention_heads=4, intermediate_size=256
)
model = BertModel(config).eval()


@torch.no_grad()
def encode(sentences):
    longest = max(map(len, sentences))
    ids = torch.tensor([sentence + [0] * (longest - len(sentence)) for sentence in sentences])
    mask = (ids != 0).long()
    hidden = model(input_ids=ids, attention_mask=mask).last_hidden_state
    mean = (hidden * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
    return torch.nn.functional.normalize(mean, dim=-1)


lengths = torch.randint(4, 60, (64,)).tolist()
sentences = [torch.randint(1, 500, (length,)).tolist() for length in lengths]
vectors = torch.cat([encode(sentences[start : start + 8]) for start in range(0, len(sentences), 8)])
print(tuple(vectors.shape), round(float((vectors @ vectors.T).diagonal().sum()), 2))
