"""Make short lists from any classifier of scikit-learn, by the probabilities that it gives.

Needs ``pip install scikit-learn``. Run: python examples/scikit_learn.py
"""

import numpy as np
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import train_test_split

from shortlist.metrics import Results, evaluate
from shortlist.predictors import AverageK, Conformal, TopK


def main() -> Results:
    """Train on a part of the digits, calibrate on another, and measure on the third."""
    images, classes = load_digits(return_X_y=True)
    train, rest, train_classes, rest_classes = train_test_split(
        images[:, ::4], classes, train_size=0.4, random_state=0, stratify=classes
    )
    halves = train_test_split(rest, rest_classes, train_size=0.5, random_state=0, stratify=rest_classes)
    val, test, val_classes, test_classes = map(np.asarray, halves)
    model = LogisticRegression(max_iter=2000).fit(train, train_classes)

    # predict_proba gives probabilities in a NumPy array: with activation="none" they are taken as they are
    scores = model.predict_proba(val)
    predictors = {
        "top2": TopK(2, activation="none"),
        "average2": AverageK(2, activation="none").calibrate(scores),
        "conformal90": Conformal(0.9, activation="none").calibrate(scores, val_classes),
    }
    sets = predictors["conformal90"](model.predict_proba(test))  # a bool tensor (n, c)
    print(f"{float(sets.sum(1).double().mean()):.2f} classes in a set on average")
    return evaluate(model.predict_proba(test), test_classes, predictors, activation="none")


if __name__ == "__main__":
    print(main())
