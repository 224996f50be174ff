"""Run folders: the one reader of them, and what is made of a trained run: scores, sets, results, lists."""
