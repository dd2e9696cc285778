"""The command line. One file a command; `main.py` turns errors into a sentence and an exit code.

Modules here import torch, and whatever imports it, inside functions: `outrider --help` and bad options answer at once.
"""
