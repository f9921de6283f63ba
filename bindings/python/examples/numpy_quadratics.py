"""
Two quadratic losses of two numbers, minimised with NumPy alone. Without surgery and alignment Adam's steps often climb one of
the losses; with them none does.

    python numpy_quadratics.py [--steps 300]
"""

import argparse

import numpy as np
import suture


def losses_and_gradients(x):
    a, b = x
    losses = [a**2 + 10 * (b - 1) ** 2, 10 * (a - 2) ** 2 + b**2]
    return losses, [np.array([2 * a, 20 * (b - 1)]), np.array([20 * (a - 2), 2 * b])]


def run(steps, **settings):
    x = np.array([-1.0, 3.0])
    opt = suture.Optimizer(x, "adam", lr=0.05, n_losses=2, **settings)
    conflicts = 0
    for _ in range(steps):
        losses, grads = losses_and_gradients(x)
        report = opt.step(grads, losses)
        conflicts += report.conflict_p
    return x, losses_and_gradients(x)[0], conflicts / steps


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=300)
    steps = parser.parse_args().steps
    if steps < 1:
        parser.error("--steps must be at least 1")
    for name, settings in (
        ("plain Adam", {}),
        ("ConFIG", {"surgery": "config"}),
        ("ConFIG, aligned", {"surgery": "config", "align": "gua", "conflict_cos_tol": 0.0}),
    ):
        x, losses, rate = run(steps, **settings)
        print(f"{name:<16} x = ({x[0]:.3f}, {x[1]:.3f})  losses {losses[0]:.4f} {losses[1]:.4f}  "
              f"steps that climb a loss: {100 * rate:.1f} %")


if __name__ == "__main__":
    main()
