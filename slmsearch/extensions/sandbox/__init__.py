"""Isolated execution of programs that a model wrote. Nothing outside this package runs a model's text."""
