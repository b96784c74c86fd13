"""Pretrained models by name: available models, fetching and converting them, and models on this machine."""
