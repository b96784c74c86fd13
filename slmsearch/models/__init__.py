"""Pretrained models by name: which ones can be had, how one is fetched and converted, and which are here."""
