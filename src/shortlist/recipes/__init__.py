"""The typed recipe of a run, and what is built from it. Needs ``pip install 'shortlist[train]'``."""
