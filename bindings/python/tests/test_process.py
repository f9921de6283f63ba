"""Threads, forked processes, and two optimizers side by side. Each child has a time limit: a hang is a failure."""

import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref

import numpy as np
import pytest
import suture

from conftest import same_bits

N = 200_000  # large enough for the library's own threads


def make(seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(N).astype(np.float32)
    G = [rng.standard_normal(N).astype(np.float32) for _ in range(2)]
    return x, G, suture.Optimizer(x, "adam", lr=1e-3, n_losses=2, surgery="config", align="gua", threads=2)


def wait(pid, seconds=60):
    end = time.time() + seconds
    while time.time() < end:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    pytest.fail("the child hangs")


def test_two_optimizers_in_two_threads():
    alone = []
    for seed in (1, 2):
        x, G, opt = make(seed)
        for _ in range(20):
            opt.step(G)
        alone.append(x.copy())
    made = [make(seed) for seed in (1, 2)]
    errors = []

    def work(x, G, opt):
        try:
            for _ in range(20):
                opt.step(G)
                suture.combine(G, "upgrad")
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=work, args=m) for m in made]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    assert not errors and not any(t.is_alive() for t in threads)
    assert all(same_bits(m[0], a) for m, a in zip(made, alone))


def test_one_optimizer_serves_two_threads_in_turn():
    x, G, opt = make()
    threads = [threading.Thread(target=lambda: [opt.step(G) for _ in range(15)]) for _ in range(2)]
    [t.start() for t in threads]
    [t.join(120) for t in threads]
    y, _, other = make()
    for _ in range(30):
        other.step(G)
    assert opt.steps == 30 and same_bits(x, y)


def test_the_lock_is_released_while_c_works():
    x = np.ones(20_000_000, np.float32)
    opt = suture.Optimizer(x, "adam", threads=1)
    g = np.ones_like(x)
    opt.step([g])
    count, stop = 0, threading.Event()

    def tick():
        nonlocal count
        while not stop.is_set():
            count += 1
            time.sleep(0)

    thread = threading.Thread(target=tick)
    thread.start()
    for _ in range(3):
        opt.step([g])
    stop.set()
    thread.join()
    assert count > 10


def test_fork_after_use():
    x, G, opt = make()
    opt.step(G)
    y, _, other = make()
    for _ in range(4):
        other.step(G)
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            for _ in range(3):
                opt.step(G)
            suture.combine(G, "config")
            code = 0 if same_bits(x, y) else 2
        finally:
            os._exit(code)
    assert wait(pid) == 0
    for _ in range(3):
        opt.step(G)
    assert same_bits(x, y)


def test_fork_while_another_thread_steps():
    """The child cannot have a complete state; it is told so instead of waiting for ever, and new optimizers work."""
    x, G, opt = make()
    stop = threading.Event()
    thread = threading.Thread(target=lambda: [opt.step(G) for _ in iter(lambda: stop.is_set(), True)])
    thread.start()
    codes = []
    try:
        for _ in range(5):
            time.sleep(0.02)
            pid = os.fork()
            if pid == 0:
                code = 1
                try:
                    try:
                        opt.step(G)
                    except suture.SequenceError:
                        pass
                    make()[2].step(G)
                    code = 0
                finally:
                    os._exit(code)
            codes.append(wait(pid))
    finally:
        stop.set()
        thread.join()
    assert codes == [0] * 5


def test_multiprocessing_with_fork_and_spawn(tmp_path):
    program = tmp_path / "program.py"
    program.write_text(
        textwrap.dedent(
            """
            import multiprocessing, sys
            import numpy as np, suture

            def work(seed):
                x = np.ones(100_000)
                opt = suture.Optimizer(x, "adam", n_losses=2, align="gua")
                rng = np.random.default_rng(seed)
                for _ in range(3):
                    opt.step(list(rng.standard_normal((2, 100_000))))
                return x[:5].tobytes(), opt

            if __name__ == "__main__":
                here = work(3)[0]
                with multiprocessing.get_context(sys.argv[1]).Pool(2) as pool:
                    there = pool.map(work, [3, 3])
                assert all(x == here for x, _ in there)
                assert all(opt.steps == 3 for _, opt in there)
                print("fine")
            """
        )
    )
    for start in ("fork", "spawn"):
        out = subprocess.run([sys.executable, program, start], capture_output=True, text=True, timeout=120)
        assert out.stdout.strip() == "fine", out.stderr


def test_global_settings_are_left_alone():
    import locale

    def settings():
        return os.getcwd(), locale.setlocale(locale.LC_ALL), signal.getsignal(signal.SIGINT), np.geterr(), sys.getswitchinterval()

    before = settings()
    x, G, opt = make()
    opt.step(G)
    opt.to_bytes()
    assert settings() == before


def test_memory_stays_constant():
    resource = pytest.importorskip("resource")
    x = np.ones(1000, np.float32)
    opt = suture.Optimizer([x], "adam", n_losses=2, surgery="config", align="gua")
    G = [[np.ones(1000, np.float32)], [-np.ones(1000, np.float32)]]

    def resident():
        with open("/proc/self/statm") as f:
            return int(f.read().split()[1]) * resource.getpagesize()

    if not os.path.exists("/proc/self/statm"):
        pytest.skip("no /proc")

    def some(k):
        for _ in range(k):
            opt.step(G)
            try:
                opt.step([[np.ones(999, np.float32)], [None]])
            except ValueError:
                pass
            suture.combine([G[0][0], G[1][0]], "config")

    some(500)
    before = resident()
    some(3000)
    assert resident() - before < 1 << 20


def test_memory_in_use_stays_alive():
    torch = pytest.importorskip("torch")
    w = torch.ones(1000)
    opt = suture.Optimizer([w], "adam")
    rows = [[torch.ones(1000)]]
    memory = [weakref.ref(t.untyped_storage()) for t in (w, rows[0][0])]
    seen = []

    # Runs in the middle of the step, after the arrays were looked at, as another thread could.
    def losses():
        w.data = torch.zeros(1000)
        rows[0][0].data = torch.zeros(1000)
        gc.collect()
        seen.extend(ref() is not None for ref in memory)
        yield 1.0

    opt._core.step(rows, losses(), False)
    assert seen == [True, True] and not w.any()
    assert [ref() for ref in memory] == [None, None]


def test_threads_at_shutdown_do_not_abort():
    program = """
        import threading, time, numpy as np, suture
        def work():
            x, g = np.ones(1 << 20), np.ones(1 << 20)
            opt = suture.Optimizer(x, "adam", threads=1)
            while True:
                opt.step([g])
        for _ in range(3):
            threading.Thread(target=work, daemon=True).start()
        time.sleep(0.3)
    """
    done = subprocess.run([sys.executable, "-c", textwrap.dedent(program)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
