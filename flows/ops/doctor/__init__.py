"""`slmsearch ops doctor`: problems of an installation, each with its remedy in one line.

`collect.py` collects facts and removes leftovers, `checks.py` judges.
"""
