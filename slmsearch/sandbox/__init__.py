"""Isolated execution of programs that a model wrote. Nothing outside this room runs a model's text."""
