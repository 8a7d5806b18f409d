"""Data sets: one file a family; `base.py` says what every one of them is."""
