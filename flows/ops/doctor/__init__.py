"""`slmsearch doctor`: what is wrong with an installation, each with its remedy in one line.

`look.py` collects facts, `packages.py`, `services.py` and `leftovers.py` judge them, `fix_findings.py` does what is safe.
"""
