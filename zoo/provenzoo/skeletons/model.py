"""MySkeleton: two linear layers with a tanh between them. Name the paper that yours is from here."""

from typing import Annotated

from pydantic import Field
from torch import Tensor, nn

from provenzoo.models.base import Groups, Model

Count = Annotated[int, Field(ge=1)]


class MySkeleton(Model, nn.Module):
    """`features` and `num_classes` have no default: the data fills them."""

    groups: Groups = {"body": ["body.*"], "head": ["head.*"]}

    def __init__(self, *, features: Count, num_classes: Count, hidden: Count = 16) -> None:
        super().__init__()
        self.body = nn.Linear(features, hidden)
        self.head = nn.Linear(hidden, num_classes)

    def forward(self, x: Tensor) -> Tensor:
        """`[B, features] -> [B, num_classes]`."""
        return self.head(self.body(x).tanh())
