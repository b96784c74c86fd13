"""`slmsearch ops doctor`: what is wrong with an installation, each with its remedy in one line.

`collect.py` collects facts and does what is safe, `checks.py` judges.
"""
