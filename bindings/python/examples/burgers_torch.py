"""
A physics-informed network for the Burgers equation in PyTorch, with three lines changed: the import, the optimizer, the step.

    u_t + u u_x = (0.01/pi) u_xx  on (-1, 1) x (0, 1),   u(x, 0) = -sin(pi x),   u(-1, t) = u(1, t) = 0

    python burgers_torch.py [--steps 2000] [--plot conflicts.png]

Trains twice, without and with alignment, and shows how often the direction of the surgery, the optimizer's proposal and the
applied step hurt one of the two losses.
"""

import argparse
import math

import torch

import suture.torch  # 1


def network():
    layers = [torch.nn.Linear(2, 32), torch.nn.Tanh()]
    for _ in range(3):
        layers += [torch.nn.Linear(32, 32), torch.nn.Tanh()]
    return torch.nn.Sequential(*layers, torch.nn.Linear(32, 1))


def residual_loss(net, points):
    points.requires_grad_(True)
    u = net(points)
    du = torch.autograd.grad(u.sum(), points, create_graph=True)[0]
    u_x, u_t = du[:, 0:1], du[:, 1:2]
    u_xx = torch.autograd.grad(u_x.sum(), points, create_graph=True)[0][:, 0:1]
    return (u_t + u * u_x - (0.01 / math.pi) * u_xx).pow(2).mean()


def boundary_loss(net, n):
    x, t = 2 * torch.rand(n, 1) - 1, torch.rand(n, 1)
    initial = net(torch.cat([x, 0 * t], 1)) + torch.sin(math.pi * x)
    walls = net(torch.cat([x.sign(), t], 1))
    return initial.pow(2).mean() + walls.pow(2).mean()


def train(steps, n, align, log=None):
    torch.manual_seed(0)
    net = network()
    opt = suture.torch.Optimizer(net.parameters(), "adam", lr=1e-3, surgery="config", align=align)  # 2
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(opt, steps)
    reports = []
    for step in range(steps):
        points = torch.cat([2 * torch.rand(n, 1) - 1, torch.rand(n, 1)], 1)
        losses = [residual_loss(net, points), boundary_loss(net, n // 4)]
        report = opt.step_losses(losses)  # 3
        decay.step()
        reports.append(report)
        if log:
            log(report, residual=losses[0].item(), boundary=losses[1].item())
        if step % max(steps // 5, 1) == 0:
            print(f"  step {step:5d}  residual {losses[0].item():.3e}  boundary {losses[1].item():.3e}")
    return [x.item() for x in losses], reports


def rates(reports):
    count = len(reports)
    return {name: sum(getattr(r, f"conflict_{name}") for r in reports) / count for name in "gaup"}


def plot(path, runs, window):
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(runs), figsize=(11, 4), sharey=True)
    for axis, (name, (_, reports)) in zip(axes, runs.items()):
        for stage, label in (("g", "gradients"), ("a", "direction"), ("u", "proposal"), ("p", "applied step")):
            hit = torch.tensor([float(getattr(r, f"conflict_{stage}")) for r in reports])
            smooth = torch.nn.functional.avg_pool1d(hit[None, None], window, 1)[0, 0]
            axis.plot(range(window, len(reports) + 1), 100 * smooth.numpy(), label=label)
        axis.set(title=name, xlabel="step")
    axes[0].set_ylabel("steps in conflict with a loss (%)")
    axes[0].legend()
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--points", type=int, default=512)
    parser.add_argument("--plot", help="write a picture of the conflict rates (needs matplotlib)")
    parser.add_argument("--csv", help="write every figure of every aligned step")
    args = parser.parse_args()
    if args.steps < 1 or args.points < 4:
        parser.error("--steps must be at least 1 and --points at least 4")
    runs = {}
    for name, align in (("without alignment", "none"), ("aligned", "gua")):
        print(name)
        log = suture.CSVWriter(args.csv) if args.csv and align == "gua" else None
        runs[name] = train(args.steps, args.points, align, log)
        if log:
            log.close()
    print(f"{'':<20}{'residual':>12}{'boundary':>12}   conflicts: gradients  direction  proposal  applied")
    for name, (losses, reports) in runs.items():
        r = rates(reports)
        shares = "".join(f"{100 * r[k]:>10.1f}%" for k in "gaup")
        print(f"{name:<20}{losses[0]:>12.3e}{losses[1]:>12.3e}   {shares}")
    if args.plot:
        plot(args.plot, runs, max(args.steps // 40, 1))


if __name__ == "__main__":
    main()
