"""Run folders: read them, and make scores, sets, results and lists of a trained run."""
