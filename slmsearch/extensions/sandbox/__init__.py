"""Isolated execution of programs that a model wrote. Only this package runs a model's text."""
