"""Training with Lightning, which only this room uses. Needs ``pip install 'shortlist[train]'``."""
