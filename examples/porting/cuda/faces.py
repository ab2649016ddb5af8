# PNet and RNet of MTCNN: a cascade's small detectors with a class, a box and a landmark head.
# ruff: noqa: UP032 (the spelling is what this script shows)
# ruff: isort: skip_file
"""Face detection nets with three losses; legacy style with Variables and .cuda() everywhere."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.autograd import Variable

import data


class PNet(nn.Module):
    size = 12

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 10, 3),
            nn.PReLU(10),
            nn.MaxPool2d(2, 2),
            nn.Conv2d(10, 16, 3),
            nn.PReLU(16),
            nn.Conv2d(16, 32, 3),
            nn.PReLU(32),
        )
        self.label, self.box, self.landmark = nn.Conv2d(32, 1, 1), nn.Conv2d(32, 4, 1), nn.Conv2d(32, 10, 1)

    def forward(self, x):
        x = self.body(x)
        return self.label(x).flatten(1), self.box(x).flatten(1), self.landmark(x).flatten(1)


class RNet(nn.Module):
    size = 24

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 28, 3),
            nn.PReLU(28),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(28, 48, 3),
            nn.PReLU(48),
            nn.MaxPool2d(3, 2),
            nn.Conv2d(48, 64, 2),
            nn.PReLU(64),
        )
        self.fc = nn.Linear(64 * 2 * 2, 64)
        self.label, self.box, self.landmark = nn.Linear(64, 1), nn.Linear(64, 4), nn.Linear(64, 10)

    def forward(self, x):
        x = torch.tanh(self.fc(self.body(x).flatten(1)))
        return self.label(x), self.box(x), self.landmark(x)


def samples(count, size, seed):
    g = torch.Generator().manual_seed(seed)
    x, label = data.images(count, size, 2, seed=seed)
    return x, label.float().unsqueeze(1), torch.rand(count, 4, generator=g), torch.rand(count, 10, generator=g)


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--net", default="pnet", choices=["pnet", "rnet"])
    parser.add_argument("--cpu", dest="use_cuda", action="store_false")
    args = parser.parse_args(argv)
    use_cuda = args.use_cuda and torch.cuda.is_available()
    torch.manual_seed(args.seed)
    if use_cuda:
        torch.cuda.manual_seed(args.seed)
    net = {"pnet": PNet, "rnet": RNet}[args.net]()
    if use_cuda:
        net.cuda()
    optimizer = torch.optim.Adam(net.parameters(), lr=args.lr / 10)
    losses = []
    for step, batch in enumerate(
        data.loader(*samples(args.steps * args.batch_size, net.size, 3), batch_size=args.batch_size)
    ):
        x, label, box, landmark = [Variable(t.cuda() if use_cuda else t) for t in batch]
        predicted, offset, points = net(x)
        mask = torch.ge(label, 0.5).float()
        loss = F.binary_cross_entropy(torch.sigmoid(predicted), label)
        loss = loss + 0.5 * (F.mse_loss(offset, box, reduction="none") * mask).mean()
        loss = loss + 0.5 * F.smooth_l1_loss(points * mask, landmark * mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.data.item())
        print("step {} loss {:.5f}".format(step, losses[-1]))
    return losses


if __name__ == "__main__":
    main()
