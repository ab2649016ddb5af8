"""torch_geometric: graph layers, pooling, batches and sampling on npu."""

import torch_geometric
from side_by_side import check, main, randint, randn, train
from torch.nn import functional as F
from torch_geometric import nn as gnn, utils
from torch_geometric.data import Batch, Data, HeteroData

import torch


def graph(seed: int = 0, nodes: int = 20, edges: int = 60, features: int = 8) -> Data:
    index = torch.stack([randint(nodes, edges, seed=seed), randint(nodes, edges, seed=seed + 1)])
    return Data(
        randn(nodes, features, seed=seed), index, randn(edges, 4, seed=seed).abs(), y=randint(3, nodes, seed=seed)
    )


LAYERS = {
    "GCNConv": lambda: gnn.GCNConv(8, 3),
    "GATConv": lambda: gnn.GATConv(8, 3, heads=2, concat=False),
    "GATv2Conv": lambda: gnn.GATv2Conv(8, 3, heads=2, concat=False),
    "SAGEConv": lambda: gnn.SAGEConv(8, 3),
    "GINConv": lambda: gnn.GINConv(torch.nn.Linear(8, 3)),
    "TransformerConv": lambda: gnn.TransformerConv(8, 3),
    "GraphConv": lambda: gnn.GraphConv(8, 3, aggr="max"),
    "ChebConv": lambda: gnn.ChebConv(8, 3, K=3),
    "EdgeConv": lambda: gnn.EdgeConv(torch.nn.Linear(16, 3)),
    "PNAConv": lambda: gnn.PNAConv(8, 3, ["mean", "max", "std"], ["identity", "amplification"], torch.arange(12)),
    "APPNP": lambda: torch_geometric.nn.Sequential(
        "x, e", [(gnn.Linear(8, 3), "x -> x"), (gnn.APPNP(3, 0.1), "x, e -> x")]
    ),
}


def register(name: str) -> None:
    @check(f"{name}, training", tolerance=1e-3, slow=name not in ("GCNConv", "GATConv"))
    def run(device: str) -> list[float]:
        torch.manual_seed(0)
        layer, data = LAYERS[name]().to(device), graph().to(device)
        return train(layer, lambda m, _: F.cross_entropy(m(data.x, data.edge_index), data.y), lr=1e-2)


for each in LAYERS:
    register(each)


@check("batches, pooling, readout")
def pooling(device):
    torch.manual_seed(0)
    data = Batch.from_data_list([graph(s) for s in range(3)]).to(device)
    layer = gnn.GCNConv(8, 8).to(device)
    x = layer(data.x, data.edge_index).relu()
    top = gnn.TopKPooling(8, 0.5).to(device)(x, data.edge_index, batch=data.batch)[0]
    return [
        gnn.global_mean_pool(x, data.batch),
        gnn.global_max_pool(x, data.batch),
        gnn.global_add_pool(x, data.batch),
        gnn.GlobalAttention(torch.nn.Linear(8, 1)).to(device)(x, data.batch),
        top,
    ]


@check("utilities: degree, softmax, scatter, dense batches, self loops, undirected")
def utilities(device):
    data = graph().to(device)
    index = data.edge_index
    return [
        utils.degree(index[0], 20),
        utils.softmax(data.edge_attr, index[1], num_nodes=20),
        utils.scatter(data.edge_attr, index[1], dim_size=20, reduce="mean"),
        utils.to_dense_adj(index),
        *utils.to_dense_batch(data.x, torch.arange(20, device=device) // 7)[:1],
        utils.add_self_loops(index)[0],
        utils.to_undirected(index),
        utils.coalesce(index),
    ]


@check("heterogeneous graphs", tolerance=1e-3)
def hetero(device):
    torch.manual_seed(0)
    data = HeteroData()
    data["a"].x, data["b"].x = randn(10, 8), randn(6, 8, seed=1)
    data["a", "to", "b"].edge_index = torch.stack([randint(10, 20), randint(6, 20)])
    data["b", "to", "a"].edge_index = torch.stack([randint(6, 20, seed=2), randint(10, 20, seed=3)])
    data = data.to(device)
    layer = gnn.HeteroConv({kind: gnn.SAGEConv((8, 8), 3) for kind in data.edge_types}).to(device)
    return train(layer, lambda m, _: sum(v.square().mean() for v in m(data.x_dict, data.edge_index_dict).values()))


def adjacency(device: str, layout: torch.layout) -> tuple[torch.Tensor, Data]:
    data = graph()
    made = utils.to_torch_coo_tensor(data.edge_index, size=20)
    made = made.to_sparse_csr() if layout == torch.sparse_csr else made
    return made.to(device), data.to(device)


SPARSE_LAYERS = {
    "SAGEConv": lambda: gnn.SAGEConv(8, 3),
    "SAGEConv, max": lambda: gnn.SAGEConv(8, 3, aggr="max"),
    "GCNConv": lambda: gnn.GCNConv(8, 3),
    "GraphConv": lambda: gnn.GraphConv(8, 3),
    "GATConv": lambda: gnn.GATConv(8, 3, heads=2, concat=False),
}


def register_sparse(name: str, layout: torch.layout) -> None:
    @check(f"{name} with an adjacency of {layout}", tolerance=1e-3)
    def run(device: str) -> list[float]:
        torch.manual_seed(0)
        matrix, data = adjacency(device, layout)
        layer = SPARSE_LAYERS[name]().to(device)
        transposed = matrix.t() if layout == torch.sparse_coo else matrix
        return train(layer, lambda m, _: F.cross_entropy(m(data.x, transposed), data.y))


for each in SPARSE_LAYERS:
    for kind in (torch.sparse_coo, torch.sparse_csr):
        register_sparse(each, kind)


if __name__ == "__main__":
    main("torch-geometric")
