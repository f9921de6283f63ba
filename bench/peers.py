"""
Suture through Python against its peers: plain Adam against torch.optim, the whole ConFIG + Adam + GUA step against two PyTorch
versions of it, surgery against conflictfree and TorchJD.

    python bench/peers.py [--sizes 1e4 1e6 1e7] [--losses 2 3 8] [--only adam|aligned|surgery] [--threads 2] [--seconds 2]

Each peer is checked against Suture before it is timed. All times are taken in one run, in turn, the least of at least nine
repetitions (three where one takes more than half a second); what counts is the ratio. Parameters are 12 tensors, as in a network of six layers.
Peers that are not installed are left out by name. Only the ratios are worth keeping: other work on the machine moves all times, and moves
those of programs with spinning threads most.
"""

import argparse
import sys
import time

import numpy as np
import torch

import suture
import suture.torch

# -- measuring --


def least(functions, seconds):
    """Least time of each function over short batches; they take turns, so that a disturbance meets all of them."""
    best = [float("inf")] * len(functions)
    inner = []
    for f in functions:
        f()
        start = time.perf_counter()
        f()
        inner.append(max(1, int(2.5e-4 / max(time.perf_counter() - start, 1e-7))))
    end, rounds = time.perf_counter() + seconds * len(functions), 0
    while rounds < 3 or (rounds < 9 and max(best) < 0.5) or time.perf_counter() < end:
        for k, f in enumerate(functions):
            time.sleep(0.01)  # threads of the one before go on spinning for a while
            warm = time.perf_counter() + 5e-3  # and a processor that slept takes a while to come back to its speed
            f()
            while time.perf_counter() < warm:
                f()
            for _ in range(1 if best[k] > 1e-3 else 8):
                start = time.perf_counter()
                for _ in range(inner[k]):
                    f()
                best[k] = min(best[k], (time.perf_counter() - start) / inner[k])
        rounds += 1
    return best


def table(title, names, times, target=None):
    print(f"\n{title}")
    for name, t in zip(names, times):
        ratio = "" if name == names[0] else f"{t / times[0]:8.2f} x"
        print(f"  {name:<38}{t * 1e6:12.1f} us {ratio}{'' if target is None else target.get(name, '')}")
    sys.stdout.flush()


def sizes_of(n):
    """Twelve tensors with n elements in all: weights and biases of six layers."""
    share = [0.02, 0.01, 0.23, 0.01, 0.23, 0.01, 0.23, 0.01, 0.22, 0.01, 0.015]
    parts = [max(1, int(n * s)) for s in share]
    return [*parts, n - sum(parts)]


def tensors(n, scale=1.0, dtype=torch.float32):
    return [scale * torch.randn(k, dtype=dtype) for k in sizes_of(n)]


# -- plain Adam --


def bench_adam(n, seconds):
    torch.manual_seed(0)
    start, grads = tensors(n), tensors(n)

    def made(kind):
        params = [p.clone().requires_grad_() for p in start]
        for p, g in zip(params, grads):
            p.grad = g.clone()
        return params, kind(params)

    kinds = {
        "suture.torch": lambda p: suture.torch.Optimizer(p, "adam", lr=1e-4),
        "suture.torch, check='none'": lambda p: suture.torch.Optimizer(p, "adam", lr=1e-4, check="none"),
        "torch fused": lambda p: torch.optim.Adam(p, lr=1e-4, fused=True),
        "torch foreach": lambda p: torch.optim.Adam(p, lr=1e-4, foreach=True),
        "torch for-loop": lambda p: torch.optim.Adam(p, lr=1e-4, foreach=False),
    }
    made = {name: made(kind) for name, kind in kinds.items()}
    for params, opt in made.values():
        for _ in range(3):
            opt.step()
    reference = torch.cat([p.detach() for p in made["torch fused"][0]])
    for name, (params, _) in made.items():
        error = (torch.cat([p.detach() for p in params]) - reference).abs().max().item()
        assert error < 1e-6, f"{name}: parameters differ by {error}"
    names = list(made)
    times = least([made[name][1].step for name in names], seconds)
    table(f"plain Adam, n = {n:.0e} in 12 tensors", names, times)


# -- the aligned step --


def nnqp(K, b):
    """min 1/2 l'Kl + b'l over l >= 0: Lawson and Hanson's active-set method."""
    m = len(b)
    active = np.zeros(m, bool)
    x = np.zeros(m)
    for _ in range(10 * m):
        w = -(b + K @ x)
        w[active] = 0
        j = int(np.argmax(w))
        if w[j] <= 1e-14 * max(1.0, np.abs(b).max()):
            break
        active[j] = True
        while True:
            s = np.zeros(m)
            s[active] = np.linalg.solve(K[np.ix_(active, active)], -b[active])
            if s[active].min() > 0:
                break
            low = active & (s <= 0)
            x += np.min(x[low] / (x[low] - s[low])) * (s - x)
            active &= x > 1e-300
        x = s
    return x


def config_weights(K):
    """ConFIG from the Gram matrix: equal cosines, projection length."""
    d = np.sqrt(np.diag(K))
    x = np.linalg.pinv(K / np.outer(d, d), hermitian=True) @ np.ones(len(d))
    w = x / d
    a2 = w @ K @ w
    return w * (np.sum(K @ w / np.sqrt(a2)) / np.sqrt(a2))


class Published:
    """Gradient-update alignment as its paper writes it down: flattened float64 copies, ConFIG by least squares, Adam, the
    projection with the whole matrix, realignment of both moments."""

    def __init__(self, params, lr, rho_m=0.1, rho_v=0.03):
        self.params, self.lr, self.rho_m, self.rho_v, self.t = params, lr, rho_m, rho_v, 0
        n = sum(p.numel() for p in params)
        self.m, self.v = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)

    @torch.no_grad()
    def step(self, rows):
        G = torch.stack([torch.cat([g.reshape(-1) for g in row]).double() for row in rows])
        norms = G.norm(dim=1, keepdim=True)
        x = torch.linalg.lstsq(G / norms, torch.ones(len(G), 1, dtype=torch.float64)).solution[:, 0]
        x = x / x.norm()
        a = (G @ x).sum() * x
        self.t += 1
        self.m = 0.9 * self.m + 0.1 * a
        self.v = 0.999 * self.v + 0.001 * a * a
        c1, c2 = 1 - 0.9**self.t, 1 - 0.999**self.t
        m_hat, D = self.m / c1, (self.v / c2).sqrt() + 1e-8
        u = m_hat / D
        cos = (G @ u) / (norms[:, 0] * u.norm() + 1e-12)
        p = u
        if cos.min() < -1e-6:
            unit = G / norms
            H = unit / D
            K = H @ unit.T + 1e-12 * torch.eye(len(G), dtype=torch.float64)
            lam = torch.from_numpy(nnqp(K.numpy(), (unit @ u).numpy()))
            p = u + H.T @ lam
        theta = torch.cat([q.reshape(-1) for q in self.params]).double() - self.lr * p
        at = 0
        for q in self.params:
            q.copy_(theta[at : at + q.numel()].view_as(q))
            at += q.numel()
        if (p - u).norm() / (u.norm() + 1e-12) > 1e-8:
            q = D * p
            self.m = ((1 - self.rho_m) * m_hat + self.rho_m * q) * c1
            self.v = ((1 - self.rho_v) * (self.v / c2) + self.rho_v * q * q) * c2


class GramForm:
    """The same as well as PyTorch can: float32, everything n-dimensional in place on flat buffers made once, weights and
    multipliers from m x m matrices in double."""

    def __init__(self, params, lr, m, rho_m=0.1, rho_v=0.03):
        self.lr, self.rho_m, self.rho_v, self.t = lr, rho_m, rho_v, 0
        n = sum(p.numel() for p in params)
        self.theta = torch.cat([p.reshape(-1) for p in params])
        at = 0
        for p in params:  # the parameters are views of one buffer, as in a well-tuned training loop
            p.data = self.theta[at : at + p.numel()].view_as(p)
            at += p.numel()
        self.G, self.H = torch.empty(m, n), torch.empty(m, n)
        self.m, self.v, self.a, self.D, self.u = (torch.zeros(n) for _ in range(5))

    @torch.no_grad()
    def step(self, rows):
        G = self.G
        for i, row in enumerate(rows):
            torch.cat([g.reshape(-1) for g in row], out=G[i])
        K = (G @ G.T).double().numpy()
        w = torch.from_numpy(config_weights(K)).float()
        torch.mv(G.T, w, out=self.a)
        self.t += 1
        c1, c2 = 1 - 0.9**self.t, 1 - 0.999**self.t
        self.m.mul_(0.9).add_(self.a, alpha=0.1)
        self.v.mul_(0.999).addcmul_(self.a, self.a, value=0.001)
        torch.sqrt(self.v, out=self.D).mul_(1 / c2**0.5).add_(1e-8)
        torch.div(self.m, self.D, out=self.u).mul_(1 / c1)
        b = (G @ self.u).double().numpy()
        d = np.sqrt(np.diag(K))
        norm_u = float(torch.linalg.vector_norm(self.u))
        if (b / (d * norm_u + 1e-12)).min() >= -1e-6:
            self.theta.add_(self.u, alpha=-self.lr)
            return
        torch.div(G, self.D, out=self.H)
        K2 = (self.H @ G.T).double().numpy()
        lam = nnqp(K2 / np.outer(d, d), b / d) / d
        lam = torch.from_numpy(lam).float()
        self.u.addmv_(self.H.T, lam)
        self.theta.add_(self.u, alpha=-self.lr)
        chi = torch.mv(G.T, lam, out=self.a)
        q = torch.add(chi, self.m, alpha=1 / c1, out=self.D)
        self.m.add_(chi, alpha=self.rho_m * c1)
        self.v.mul_(1 - self.rho_v).addcmul_(q, q, value=self.rho_v * c2)


def gradient_sets(n, m, count=10):
    """Sets that follow each other. Even losses share a lasting direction and odd ones oppose it, each time in another way:
    momentum keeps the lasting part, conflicts with the odd losses, and the projection has work."""
    torch.manual_seed(1)
    lasting = tensors(n)
    sets = []
    for _ in range(count):
        sets.append([[(-0.6 if i % 2 else 1.0) * s + (1.0 if i % 2 else 0.3) * torch.randn_like(s) for s in lasting]
                     for i in range(m)])
    return sets


class Cycle:
    def __init__(self, step, sets):
        self.step, self.sets, self.k = step, sets, 0

    def __call__(self):
        self.k += 1
        return self.step(self.sets[self.k % len(self.sets)])


def bench_aligned(n, m, seconds):
    torch.manual_seed(0)
    start, sets = tensors(n), gradient_sets(n, m)
    made = {}
    for name in ("suture.torch", "suture.torch, report=False", "PyTorch, Gram form", "PyTorch, as published"):
        params = [p.clone() for p in start]
        if name.startswith("suture"):
            opt = suture.torch.Optimizer(params, "adam", lr=1e-4, surgery="config", align="gua")
            report = "report" not in name
            step = lambda rows, opt=opt, report=report: opt.step_grads(rows, report=report)
        else:
            opt = Published(params, 1e-4) if "published" in name else GramForm(params, 1e-4, m)
            step = opt.step
        made[name] = params, Cycle(step, sets), opt
    projected = 0
    for _ in range(20):
        for _, step, _ in made.values():
            step()
        projected += made["suture.torch"][2].report.projected
    moved = torch.cat(start) - torch.cat([p.detach() for p in made["PyTorch, as published"][0]])
    for name, (params, _, _) in made.items():
        ours = torch.cat(start) - torch.cat([p.detach() for p in params])
        error = ((ours - moved).norm() / moved.norm()).item()
        assert error < 2e-2, f"{name}: steps differ by {error}"
    names = list(made)
    times = least([made[name][1] for name in names], seconds)
    table(f"ConFIG + Adam + GUA, n = {n:.0e} in 12 tensors, m = {m} ({projected} of 20 steps projected)", names, times)


# -- surgery --


def bench_surgery(n, m, seconds):
    torch.manual_seed(2)
    G = torch.randn(m, n)
    G[1:] -= 0.4 * G[0]
    peers = {}
    try:
        from torchjd import aggregation as jd

        peers |= {
            "config": [("TorchJD ConFIG", jd.ConFIG())], "imtlg": [("TorchJD IMTLG", jd.IMTLG())],
            "aligned_mtl": [("TorchJD AlignedMTL", jd.AlignedMTL())], "mgda": [("TorchJD MGDA", jd.MGDA())],
            "pcgrad": [("TorchJD PCGrad", jd.PCGrad())],
        }
        for method, name, make in (
            ("upgrad", "UPGrad", jd.UPGrad), ("dualproj", "DualProj", jd.DualProj), ("cagrad", "CAGrad", lambda: jd.CAGrad(c=0.5)),
        ):
            try:
                peers[method] = [(f"TorchJD {name}", make())]
            except ImportError as error:
                print(f"TorchJD {name} is left out: {error}")
    except ImportError:
        print("TorchJD is left out: not installed")
    try:
        from conflictfree import grad_operator as cf

        peers.setdefault("config", []).append(("conflictfree ConFIG", cf.ConFIG_update))
        peers.setdefault("pcgrad", []).append(("conflictfree PCGrad", cf.PCGradOperator().calculate_gradient))
        peers.setdefault("imtlg", []).append(("conflictfree IMTLG", cf.IMTLGOperator().calculate_gradient))
    except ImportError:
        print("conflictfree is left out: not installed")
    for method, others in peers.items():
        options = {"mgda_frank_wolfe": True} if method == "mgda" else {"cagrad_rescale": 0} if method == "cagrad" else {}
        names = [f"suture.combine {method}", *[name for name, _ in others]]
        runs = [lambda: suture.combine(G, method, **options), *[(lambda f=f: f(G)) for _, f in others]]
        if method != "pcgrad":  # orders are drawn
            want = runs[0]()
            for name, run in zip(names[1:], runs[1:]):
                cos = torch.nn.functional.cosine_similarity(run().double(), want.double(), dim=0).item()
                if cos < 0.999:
                    print(f"  note: {name} has cosine {cos:.3f} with suture's direction (float32)")
        table(f"{method}, n = {n:.0e}, m = {m}", names, least(runs, seconds))


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sizes", type=float, nargs="+", default=[1e4, 1e6, 1e7])
    parser.add_argument("--losses", type=int, nargs="+", default=[2, 3, 8])
    parser.add_argument("--only", choices=["adam", "aligned", "surgery"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=1.0, help="time for each function measured")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    print(suture.diagnose())
    for n in map(int, args.sizes):
        if args.only in (None, "adam"):
            bench_adam(n, args.seconds)
        for m in args.losses:
            if args.only in (None, "aligned"):
                bench_aligned(n, m, args.seconds)
            if args.only in (None, "surgery"):
                bench_surgery(n, m, args.seconds)


if __name__ == "__main__":
    main()
