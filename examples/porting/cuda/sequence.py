# LSTM and GRU: recurrent classification and a translation-like encoder and decoder with attention.
# ruff: isort: skip_file
"""Recurrent nets; hidden states made on the device, gradient clipping."""

import torch
from torch import cuda, nn

import data


class Reader(nn.Module):
    def __init__(self, cell, classes=4):
        super().__init__()
        self.embed = nn.Linear(8, 16)
        self.rnn = getattr(nn, cell)(16, 32, num_layers=1, batch_first=True)
        self.out = nn.Linear(32, classes)

    def forward(self, x, hidden):
        states, _ = self.rnn(torch.tanh(self.embed(x)), hidden)
        weights = torch.softmax((states * states[:, -1:]).sum(2) / 32**0.5, 1)
        return self.out(torch.bmm(weights.unsqueeze(1), states).squeeze(1))


def hidden_state(cell, batch, use_cuda):
    zeros = torch.zeros(1, batch, 32)
    if use_cuda:
        zeros = zeros.cuda()
    return (zeros, zeros.clone()) if cell == "LSTM" else zeros


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--cell", default="LSTM", choices=["LSTM", "GRU"])
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args(argv)
    use_cuda = cuda.is_available() and not args.cpu
    torch.manual_seed(args.seed)
    model = Reader(args.cell)
    if use_cuda:
        cuda.set_device(0)
        model.cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
    losses = []
    batches = data.loader(*data.sequences(args.steps * args.batch_size, 10, 8, 4), batch_size=args.batch_size)
    for step, (x, y) in enumerate(batches):
        if use_cuda:
            x, y = x.cuda(), y.cuda()
        loss = nn.functional.cross_entropy(model(x, hidden_state(args.cell, len(x), use_cuda)), y)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 5.0)
        optimizer.step()
        if use_cuda:
            cuda.synchronize()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
