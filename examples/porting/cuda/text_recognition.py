# LPRNet and the recognition branch of FOTS: a convolutional net read column by column with a CTC loss.
# ruff: isort: skip_file
"""Text recognition; per-batch tensors with torch.cuda.LongTensor kept apart from the lengths on the CPU."""

import torch
import torch.nn as nn
import torch.nn.functional as F

import data

CHARACTERS = 8


class LPRNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(), nn.MaxPool2d((2, 1)),
            nn.Conv2d(16, 32, (1, 5), padding=(0, 2)), nn.BatchNorm2d(32), nn.ReLU(), nn.MaxPool2d(2),
        )  # fmt: skip
        self.head = nn.Conv2d(32, CHARACTERS + 1, 1)

    def forward(self, x):
        x = self.body(x)
        context = F.avg_pool2d(x, 3, 1, 1)
        x = self.head(x + context / (context.pow(2).mean() + 1e-3))
        return x.mean(2).permute(2, 0, 1).log_softmax(2)


def plates(count, length=4):
    g = torch.Generator().manual_seed(5)
    text = torch.randint(1, CHARACTERS + 1, (count, length), generator=g)
    x = torch.randn(count, 3, 16, 32, generator=g) * 0.1
    for i in range(length):
        x[:, 0, :, i * 8 : i * 8 + 6] += text[:, i, None, None] / CHARACTERS
    return x, text


def main(argv=None):
    parser = data.step_parser(__doc__)
    parser.add_argument("--cuda", default=True, type=lambda text: text == "True", help="use cuda: True or False")
    args = parser.parse_args(argv)
    torch.manual_seed(args.seed)
    net = LPRNet()
    on_gpu = args.cuda and torch.cuda.is_available()
    if on_gpu:
        net = net.cuda()
    ctc = nn.CTCLoss(blank=0, reduction="mean", zero_infinity=True)
    optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, momentum=0.9)
    losses = []
    for step, (x, text) in enumerate(data.loader(*plates(args.steps * args.batch_size), batch_size=args.batch_size)):
        lengths = torch.full((len(x),), text.size(1), dtype=torch.long)
        if on_gpu:
            x, text = x.cuda(), text.type(torch.cuda.LongTensor)
        scores = net(x)
        loss = ctc(scores, text, torch.full((x.size(0),), scores.size(0), dtype=torch.long), lengths)
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), 20)
        optimizer.step()
        losses.append(loss.item())
        print(f"step {step} loss {losses[-1]:.5f}")
    return losses


if __name__ == "__main__":
    main()
