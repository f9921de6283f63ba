"""PyTorch on the GPU, for the table of bench/gpu.sh: its fused Adam, and gradient-update alignment in its Gram form."""

import torch


def least(call, count):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    best = float("inf")
    for round in range(10):
        begin.record()
        for _ in range(count):
            call()
        end.record()
        end.synchronize()
        if round:
            best = min(best, 1e3 * begin.elapsed_time(end) / count)
    return best


class Aligned:
    """ConFIG's weights do not matter for the time: the sum, Adam, projection and realignment, all in place on flat tensors."""

    def __init__(self, n, m):
        self.theta = torch.randn(n, device="cuda")
        shared = torch.randn(n, device="cuda")
        self.g = torch.stack([(-0.6 if i % 2 else 1.0) * shared + 0.5 * torch.randn(n, device="cuda") for i in range(m)])
        self.m, self.v = torch.zeros_like(self.theta), torch.zeros_like(self.theta)
        self.t = 0

    def __call__(self):
        self.t += 1
        a = self.g.sum(0)
        self.m.lerp_(a, 0.1)
        self.v.mul_(0.999).addcmul_(a, a, value=0.001)
        c1, c2 = 1 - 0.9**self.t, 1 - 0.999**self.t
        D = (self.v / c2).sqrt_().add_(1e-8)
        u = self.m / c1 / D
        b = self.g @ u
        K = (self.g / D) @ self.g.T
        lam = torch.linalg.solve(K, -b).clamp_(min=0)  # the active set of this problem; no visit to the host
        chi = lam @ self.g
        u.add_(chi / D)
        self.m.add_(chi, alpha=0.9 * c1)
        q = D * u
        self.v.lerp_(q * q * c2, 0.9)
        self.theta.sub_(u, alpha=1e-5)


def main():
    print(f"PyTorch {torch.__version__}, {torch.cuda.get_device_name()}")
    print("| n | step | time |\n|---|---|---|")
    for n in (10_000, 1_000_000, 10_000_000, 100_000_000):
        params = [torch.randn(n // 12, device="cuda") for _ in range(12)]
        for p in params:
            p.grad = torch.randn_like(p)
        opt = torch.optim.Adam(params, lr=1e-5, fused=True)
        count = 200 if n < 10_000_000 else 20
        print(f"| {n:.0e} | fused Adam | {least(opt.step, count):.1f} us |")
        del params, opt
        for m in (2, 8):
            if n * (m + 8) * 4 < 0.8 * torch.cuda.get_device_properties(0).total_memory:
                print(f"| {n:.0e} | aligned, Gram form, {m} losses | {least(Aligned(n, m), count):.1f} us |")
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
