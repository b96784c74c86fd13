"""`slmsearch doctor`: what is wrong with an installation, each with its remedy in one line.

`collect.py` collects facts, `packages.py` and `checks.py` judge them, `fix.py` does what is safe.
"""
