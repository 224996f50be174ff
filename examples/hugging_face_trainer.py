"""Train with the Trainer of Hugging Face and a loss for short lists, then make sets of its predictions.

Needs ``pip install transformers accelerate``. Any model whose output has ``logits`` is trained the same way;
here it is a linear layer on embeddings, so that the example takes seconds.
Run: python examples/hugging_face_trainer.py
"""

import tempfile

import torch
from torch import Tensor, nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments  # pyright: ignore[reportMissingImports]

from shortlist.losses import NoisedTopKLoss
from shortlist.metrics import Results, evaluate
from shortlist.predictors import AverageK, Conformal, TopK

CLASSES, DIM = 20, 16


class Rows(Dataset):
    """Embeddings and classes in the form that the Trainer wants: a dictionary for each row."""

    def __init__(self, centers: Tensor, rows: int, *, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.labels = torch.randint(CLASSES, (rows,), generator=generator)
        self.embeddings = centers[self.labels] + torch.randn(rows, DIM, generator=generator)

    def __len__(self) -> int:
        """Return the number of rows."""
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        """Return one row."""
        return {"embeddings": self.embeddings[index], "labels": self.labels[index]}


class Classifier(nn.Module):
    """A linear classifier of embeddings, whose output is a dictionary as that of a transformer."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(DIM, CLASSES)

    def forward(self, embeddings: Tensor, labels: Tensor | None = None) -> dict[str, Tensor]:
        """Return the logits (n, c); the Trainer computes the loss from them."""
        return {"logits": self.linear(embeddings)}


def main(rows: int = 2000, epochs: int = 5) -> Results:
    """Train, calibrate on validation rows, and measure on test rows."""
    torch.manual_seed(0)
    centers = torch.randn(CLASSES, DIM)
    train, val, test = (Rows(centers, rows, seed=seed) for seed in range(3))
    loss = NoisedTopKLoss(k=3)

    def short_list_loss(outputs: dict[str, Tensor], labels: Tensor, **_: object) -> Tensor:
        return loss(outputs["logits"], labels)

    with tempfile.TemporaryDirectory() as folder:
        arguments = TrainingArguments(
            output_dir=folder,
            num_train_epochs=epochs,
            per_device_train_batch_size=64,
            per_device_eval_batch_size=256,
            learning_rate=0.05,
            label_names=["labels"],
            report_to="none",
            save_strategy="no",
            disable_tqdm=True,
            use_cpu=True,
        )
        model = Classifier()
        trainer = Trainer(model, arguments, train_dataset=train, compute_loss_func=short_list_loss)
        trainer.train()
        held_out, tested = trainer.predict(val), trainer.predict(test)

    # predictions are NumPy arrays of logits, which predictors and evaluate take as they are
    predictors = {
        "top3": TopK(3),
        "average3": AverageK(3).calibrate(held_out.predictions),
        "conformal90": Conformal(0.9).calibrate(held_out.predictions, held_out.label_ids),
    }
    return evaluate(tested.predictions, tested.label_ids, predictors)


if __name__ == "__main__":
    print(main())
