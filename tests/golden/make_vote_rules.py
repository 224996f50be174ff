"""Write vote_rules.json with crowd-kit 1.4: `python tests/golden/make_vote_rules.py`.

It needs `pip install crowd-kit`. The votes are made by a seed, with users of different skills and gaps.
"""

import json
from collections import Counter
from pathlib import Path

import numpy as np


def make_votes(seed: int = 0) -> list[tuple[str, str, str]]:
    """Return (item, user, label) of up to 80 items, 14 users and 5 labels."""
    rng = np.random.default_rng(seed)
    skill = rng.uniform(0.2, 0.95, 14)
    rows: list[tuple[str, str, str]] = []
    for item in range(80):
        true = int(rng.integers(5))
        users = rng.choice(14, size=int(rng.integers(1, 8)), replace=False).tolist()
        labels = [true if rng.random() < skill[user] else int(rng.integers(5)) for user in users]
        first, *rest = sorted(Counter(labels).values(), reverse=True)
        if not rest or first > rest[0]:  # of a tie each tool chooses in its own way
            rows += [(f"i{item:02d}", f"u{user:02d}", f"l{n}") for user, n in zip(users, labels, strict=True)]
    return rows


def main() -> None:
    import pandas as pd
    from crowdkit.aggregation import DawidSkene, MajorityVote, Wawa  # pyright: ignore[reportMissingImports]

    rows = make_votes()
    data = pd.DataFrame(rows, columns=["task", "worker", "label"])
    skills = Wawa().fit(data).skills_
    dawid_skene = DawidSkene(n_iter=20, tol=-np.inf)
    found = {
        "source": "crowd-kit 1.4.2, tests/golden/make_vote_rules.py",
        "majority": MajorityVote().fit_predict(data).sort_index().to_dict(),
        "agreement": MajorityVote().fit_predict(data, skills=skills).sort_index().to_dict(),
        "agreement_weights": skills.sort_index().to_dict(),
        "dawid_skene": dawid_skene.fit_predict(data).sort_index().to_dict(),
        "dawid_skene_probability": dawid_skene.probas_.max(axis=1).sort_index().to_dict(),
    }
    path = Path(__file__).with_name("vote_rules.json")
    path.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
