"""
Multi-task learning on synthetic data: one trunk, three regression heads whose targets pull the trunk in different directions
and whose scales differ by a factor of a hundred.

    python mtl_torch.py [--steps 500]
"""

import argparse

import torch

import suture.torch


def data(n):
    torch.manual_seed(1)
    x = torch.randn(n, 10)
    z = x @ torch.randn(10, 3) / 3
    return x, [torch.sin(z[:, :1]), 10 * torch.cos(z[:, 1:2]) - 3 * z[:, :1], 0.1 * z[:, :1] * z[:, 2:3]]


class Network(torch.nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(2)
        self.trunk = torch.nn.Sequential(torch.nn.Linear(10, 24), torch.nn.Tanh(), torch.nn.Linear(24, 12), torch.nn.Tanh())
        self.heads = torch.nn.ModuleList(torch.nn.Linear(12, 1) for _ in range(3))

    def forward(self, x):
        h = self.trunk(x)
        return [head(h) for head in self.heads]


def explained(net, x, targets):
    """Share of each target's variance that the network explains."""
    with torch.no_grad():
        return [1 - ((y - t) ** 2).mean().item() / t.var().item() for y, t in zip(net(x), targets)]


def train(steps, **settings):
    x, targets = data(512)
    net = Network()
    opt = suture.torch.Optimizer(net.named_parameters(), "adamw", lr=3e-3, loss_names=["sine", "mixed", "product"], **settings)
    conflicts = 0
    for _ in range(steps):
        losses = [((y - t) ** 2).mean() for y, t in zip(net(x), targets)]
        conflicts += opt.step_losses(losses).conflict_p
    return explained(net, x, targets), conflicts / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=500)
    steps = parser.parse_args().steps
    if steps < 1:
        parser.error("--steps must be at least 1")
    print(f"{'':<22}   sine  mixed  product   steps that hurt a task")
    for name, settings in (
        ("sum of the losses", {}),
        ("IMTL-G", {"surgery": "imtlg"}),
        ("IMTL-G, aligned", {"surgery": "imtlg", "align": "gua"}),
    ):
        shares, rate = train(steps, **settings)
        print(f"{name:<22}  {shares[0]:5.3f}  {shares[1]:5.3f}    {shares[2]:5.3f}   {100 * rate:5.1f} %")


if __name__ == "__main__":
    main()
