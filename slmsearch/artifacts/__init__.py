"""Directories and files that appear whole or not at all, and copies of them on shared storage."""
