"""The four teachers of Zhang, Zhao, Gu, Cao, Examples 2.1, 2.2, 2.3 and 2.5, with their ground-truth softmax scores."""

from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from provenzoo.draws import generator
from provenzoo.errors import ZooError
from provenzoo.models.activations import Activation, Leak
from provenzoo.models.base import Count
from provenzoo.teachers.base import BilinearTeacher


def drawn_value(seed: int, features: int, dim: int) -> Tensor:
    """V* `[M, d]`: standard normal entries, drawn by (seed, "value")."""
    return torch.randn(features, dim, generator=generator(seed, "value"))


class ConvPool(BilinearTeacher):
    """A convolution with average pooling (Example 2.1): every K neighbouring patches form a pooling group."""

    def __init__(
        self,
        *,
        seed: int = 0,
        tokens: Count = 36,
        dim: Count = 10,
        features: Count = 10,
        group: Count = 4,
        activation: Activation = "relu",
        leak: Leak = 0.1,
    ) -> None:
        if tokens % group:
            raise ZooError(f"conv-pool: groups of {group} do not divide {tokens} tokens; choose another `group`")
        blocks = torch.full((group, group), 1 / group)
        attention = torch.block_diag(*[blocks] * (tokens // group))
        super().__init__(drawn_value(seed, features, dim), attention, activation, leak)


Edge = Annotated[list[Annotated[int, Field(ge=0)]], Field(min_length=2, max_length=2)]


class GraphConv(BilinearTeacher):
    """A graph convolution (Example 2.2): `S* = D^{-1/2} A D^{-1/2}` of a regular graph with self-loops, K = degree + 1.

    The graph is a cycle of `tokens` nodes, or that of `edges` (pairs of nodes, undirected) or `adjacency` (rows of 0
    and 1). An edge given twice and a self-loop count once.
    """

    def __init__(
        self,
        *,
        seed: int = 0,
        tokens: Count = 20,
        dim: Count = 10,
        features: Count = 10,
        edges: list[Edge] | None = None,
        adjacency: list[list[Annotated[int, Field(ge=0, le=1)]]] | None = None,
        activation: Activation = "relu",
        leak: Leak = 0.1,
    ) -> None:
        if edges is not None and adjacency is not None:
            raise ZooError("graph-conv: `edges` and `adjacency` are both given; give one")
        graph = _matrix(adjacency, tokens) if adjacency is not None else _of_edges(edges, tokens)
        graph.fill_diagonal_(1)
        attention = graph / _group_size(graph)
        super().__init__(drawn_value(seed, features, dim), attention, activation, leak)


def _of_edges(edges: list[list[int]] | None, nodes: int) -> Tensor:
    """The adjacency `[D, D]` of an edge list; of a cycle where there is none."""
    pairs = [[i, (i + 1) % nodes] for i in range(nodes)] if edges is None else edges
    if far := [pair for pair in pairs if max(pair) >= nodes]:
        raise ZooError(
            f"graph-conv: edge {far[0]} names a node that is not among the {nodes} of `tokens` (0..{nodes - 1})"
        )
    graph = torch.zeros(nodes, nodes)
    for a, b in pairs:
        graph[a, b] = graph[b, a] = 1
    return graph


def _matrix(rows: list[list[int]], nodes: int) -> Tensor:
    if len(rows) != nodes or any(len(row) != nodes for row in rows):
        raise ZooError(f"graph-conv: `adjacency` is not {nodes} x {nodes}, as `tokens` says")
    graph = torch.tensor(rows, dtype=torch.float32)
    if not torch.equal(graph, graph.T):
        i, j = torch.nonzero(graph != graph.T)[0].tolist()
        raise ZooError(f"graph-conv: `adjacency` is not symmetric: [{i}][{j}] and [{j}][{i}] differ")
    return graph


def _group_size(graph: Tensor) -> int:
    """K = degree + 1 of a graph with self-loops; the paper's class holds regular graphs alone."""
    sizes = graph.sum(0).long()
    if len(sizes.unique()) > 1:
        least, most = int(sizes.argmin()), int(sizes.argmax())
        raise ZooError(
            f"graph-conv: the graph is not regular: node {least} has degree {sizes[least] - 1}, "
            f"node {most} has {sizes[most] - 1}; give every node as many edges"
        )
    return int(sizes[0])


class SparseToken(BilinearTeacher):
    """Sparse token selection (Example 2.3): every column is the mean of the same K tokens, drawn by (seed, "tokens").

    V* is the identity, `features` = `dim`.
    """

    def __init__(self, *, seed: int = 0, tokens: Count = 20, dim: Count = 10, group: Count = 4) -> None:
        super().__init__(torch.eye(dim), _rows(seed, tokens, group), "identity", 1.0)


class GroupSparse(BilinearTeacher):
    """A group-sparse linear predictor (Example 2.5): `<v*, x_i*>` of one token i*, drawn by (seed, "tokens"); M = 1."""

    def __init__(self, *, seed: int = 0, tokens: Count = 20, dim: Count = 10) -> None:
        super().__init__(drawn_value(seed, 1, dim), _rows(seed, tokens, 1), "identity", 1.0)


def _rows(seed: int, tokens: int, group: int) -> Tensor:
    """S* `[D, D]` with 1/K in K drawn rows."""
    if group > tokens:
        raise ZooError(f"{group} of {tokens} tokens cannot be selected; `group` is at most `tokens`")
    chosen = torch.randperm(tokens, generator=generator(seed, "tokens"))[:group]
    attention = torch.zeros(tokens, tokens)
    attention[chosen] = 1 / group
    return attention
