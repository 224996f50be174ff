"""Recipes, and runs that come of them. Needs ``pip install 'shortlist[train]'``."""
