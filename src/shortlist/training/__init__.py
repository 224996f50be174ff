"""Training with Lightning; no other room knows of it. Needs ``pip install 'shortlist[train]'``."""
