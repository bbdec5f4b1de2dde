"""Gradients that captured code asks for: `backward()`, `torch.autograd.grad`, hooks."""
