"""Names that one attacker invents: which share of the valid labels is wrong, by the rules of votes.

Of 200 people 60 are names of one attacker, who give the same wrong label to an item that they vote on. The
others know the label with probability 0.8. Each of 2,000 items has a number of votes drawn at random.
"""

import argparse
from typing import Any

import numpy as np

from shortlist.curation import aggregate_votes

PEOPLE, SYBILS, INVITED, ITEMS, LABELS = 200, 60, 20, 2000, 50


def draw_votes(seed: int, votes: float) -> tuple[dict[str, Any], np.ndarray]:
    """Draw votes of honest people and of an attacker's names; return them and the true labels."""
    random = np.random.default_rng(seed)
    truth = random.integers(LABELS, size=ITEMS)
    wrong = (truth + random.integers(1, LABELS, size=ITEMS)) % LABELS
    columns: dict[str, Any] = {name: [] for name in ("item", "user", "label", "invited")}
    for item in range(ITEMS):
        number = min(PEOPLE, 1 + random.poisson(votes - 1))
        for user in random.choice(PEOPLE, size=number, replace=False).tolist():
            label = truth[item] if random.random() < 0.8 else random.integers(LABELS)
            columns["item"].append(item)
            columns["user"].append(f"u{user}")
            columns["label"].append(f"c{wrong[item] if user < SYBILS else label}")
            columns["invited"].append(int(PEOPLE - INVITED <= user))
    return columns, truth


def main() -> None:
    """Print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    arguments = parser.parse_args()
    rules = {"theta 0.5, one voter": (0.5, 1), "theta 0.5, two voters": (0.5, 2)}
    rules |= {"theta 2, one voter": (2.0, 1), "theta 2, two voters": (2.0, 2)}
    for votes in (2.0, 5.0):
        for name, (theta, least) in rules.items():
            for has_invited in (False, True):
                cells = []
                for seed in range(arguments.seeds):
                    columns, truth = draw_votes(seed, votes)
                    if not has_invited:
                        columns.pop("invited")
                    labels = aggregate_votes(**columns, theta=theta, min_voters=least)
                    right = labels.labels == np.char.add("c", truth[labels.items].astype(str))
                    wrong = (~right)[labels.valid].mean() if labels.valid.any() else 0.0
                    cells.append(f"{labels.valid.sum()} ({100 * wrong:.1f} %)")
                who = "20 invited" if has_invited else "nobody invited"
                print(f"{votes:g} votes an item, {name}, {who}: {', '.join(cells)}")


if __name__ == "__main__":
    main()
