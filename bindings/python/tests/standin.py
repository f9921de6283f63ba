"""
A GPU where there is none. The execution layer of the library's own tests (tests/cuda/exec) runs the CUDA back end on the
CPU; its device memory is memory of this process that nobody can touch outside of the runtime's calls: what reads or writes it
by mistake ends the process. Here that memory is presented as what users have:

    Array       an object with __cuda_array_interface__, as those of CuPy and Numba
    Tensor      a tensor of PyTorch that says cuda:0 for its device, of a class of its own
    genuine     one of class torch.Tensor, which PyTorch itself takes for one on a GPU (cuda_tensor.cpp)
    Gpu         stands in for suture._cuda, the one place where the package asks PyTorch about GPUs

The environment variable SUTURE_CUDA_STANDIN names the library (tests/python.sh builds it).
"""

import contextlib
import ctypes
import os
import pathlib
import subprocess

import numpy as np
import torch

LIBRARY = os.environ.get("SUTURE_CUDA_STANDIN", "")

def _calls():
    calls = ctypes.CDLL(str(pathlib.Path(LIBRARY).parent / "exec" / "libsuture_exec.so"))
    for name in ("exec_allocate", "exec_stream_create", "exec_end_capture"):
        getattr(calls, name).restype = ctypes.c_void_p
    for name in ("exec_launches", "exec_waits"):
        getattr(calls, name).restype = ctypes.c_long
    calls.exec_allocate.argtypes = [ctypes.c_size_t]
    calls.exec_free.argtypes = calls.exec_capture.argtypes = calls.exec_end_capture.argtypes = [ctypes.c_void_p]
    calls.exec_wait.argtypes = calls.exec_stream_destroy.argtypes = [ctypes.c_void_p]
    calls.exec_launch.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
    calls.exec_write.argtypes = calls.exec_read.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p]
    return calls


_genuine = None


def genuine(folder):
    """The function that makes such tensors, or why there is none."""
    global _genuine
    if _genuine is None:
        here, torch_folder = pathlib.Path(__file__).parent, pathlib.Path(torch.__file__).parent
        library = folder / "cuda_tensor.so"
        command = [os.environ.get("CXX", "c++"), "-std=c++20", "-O1", "-shared", "-fPIC", here / "cuda_tensor.cpp", "-o", library]
        command += ["-I", torch_folder / "include", "-L", torch_folder / "lib", "-lc10", "-ltorch_cpu"]
        try:
            out = subprocess.run(command, capture_output=True, text=True, timeout=300)
            _genuine = ctypes.CDLL(str(library)).make if out.returncode == 0 else (out.stderr.splitlines() or ["?"])[0]
        except OSError as error:
            _genuine = str(error)
        if not isinstance(_genuine, str):
            _genuine.restype = ctypes.c_void_p
    return _genuine


class Array:
    """What CuPy and Numba give out. `stream`: as the interface has it."""

    def __init__(self, gpu, host, index=0, stream=None):
        self.gpu, self.index, self.stream = gpu, index, stream
        self.shape, self.strides, self.dtype = host.shape, host.strides, host.dtype
        self.read_only = False
        self.move(host, index)

    def move(self, host, index):
        """Other memory with these numbers, which may be on another device."""
        self.index = index
        order = np.argsort([-s for s in host.strides], kind="stable")
        flat = np.ascontiguousarray(host.transpose(order))
        self.pointer = self.gpu.upload(flat.tobytes(), index)

    @property
    def __cuda_array_interface__(self):
        return {
            "shape": self.shape,
            "typestr": self.dtype.str,
            "data": (self.pointer, self.read_only),
            "strides": self.strides,
            "version": 3,
            "stream": self.stream,
        }

    def __dlpack_device__(self):
        return (2, self.index)

    def numpy(self):
        size = int(np.prod(self.shape)) * self.dtype.itemsize
        raw = self.gpu.download(self.pointer, size, self.stream or 0)
        return np.ndarray(self.shape, self.dtype, bytearray(raw), 0, self.strides)


class Tensor(torch.Tensor):
    """Over device memory; index None: an ordinary one, that can move."""

    index = None
    gpu = None

    @property
    def device(self):
        return torch.device("cpu") if self.index is None else torch.device("cuda", self.index)

    @property
    def __cuda_array_interface__(self):
        raise RuntimeError("Can't get __cuda_array_interface__ on Variable that requires grad.")  # as PyTorch says

    def __deepcopy__(self, memo):
        made = self.gpu.tensor(self.gpu.to_host(self), self.index, self.requires_grad)
        memo[id(self)] = made
        return made

    def __reduce_ex__(self, protocol):
        return _rebuilt, (self.gpu.to_host(self), self.index, self.requires_grad)

    def __repr__(self, **_):
        return f"Tensor({tuple(self.shape)}, {self.device})"


def _rebuilt(host, index, requires_grad):
    return Gpu.now.tensor(host, index, requires_grad)


class Gpu:
    """Device memory, streams, and the functions of suture._cuda."""

    now = None

    def __init__(self, make=None):
        self.calls = _calls()
        self.make = make  # of genuine tensors
        self.pointers = []
        self.streams = {0: 0, 1: 0}  # PyTorch's current stream of each device
        self.asked = []  # what suture._cuda was asked for
        Gpu.now = self

    # -- memory --

    def upload(self, contents, index=0):
        with self.device(index):
            pointer = self.calls.exec_allocate(max(1, len(contents)))
            assert pointer
            self.pointers.append(pointer)
            assert self.calls.exec_write(pointer, contents, len(contents), None) == 0
        return pointer

    def download(self, pointer, size, stream=0):
        host = ctypes.create_string_buffer(max(1, size))
        assert self.calls.exec_read(host, pointer, size, stream) == 0
        return host.raw[:size]

    def close(self):
        for pointer in self.pointers:
            self.calls.exec_free(pointer)

    @contextlib.contextmanager
    def on(self, stream, index=0):
        """with torch.cuda.stream(stream)"""
        before, self.streams[index] = self.streams[index], stream
        yield stream
        self.streams[index] = before

    def stream(self, index=0):
        with self.device(index):
            return self.calls.exec_stream_create()

    # -- tensors --

    def over(self, pointer, like, index=0, requires_grad=False):
        """A tensor over device memory, in the shape, order and type of `like`."""
        if self.make:
            return self.over_genuine(pointer, like, index, requires_grad)
        size = 0 if like.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride()))
        if size:
            flat = torch.frombuffer((ctypes.c_char * (size * like.element_size())).from_address(pointer), dtype=like.dtype)
        else:
            flat = torch.empty(0, dtype=like.dtype)
        made = torch.Tensor._make_subclass(Tensor, flat.as_strided(like.shape, like.stride()), requires_grad)
        made.index, made.gpu = index, self
        return made

    def over_genuine(self, pointer, like, index, requires_grad):
        kinds = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
        numbers = ctypes.c_int64 * max(1, like.dim())
        bytes_below = 0
        if like.numel():
            bytes_below = like.element_size() * (1 + sum((n - 1) * s for n, s in zip(like.shape, like.stride())))
        handle = self.make(
            ctypes.c_void_p(pointer), like.dim(), numbers(*like.shape), numbers(*like.stride()), ctypes.c_int64(bytes_below),
            kinds.index(like.dtype), index,
        )
        capsule = ctypes.pythonapi.PyCapsule_New
        capsule.restype, capsule.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
        made = torch._C._aoti.alloc_tensor_by_stealing_from_void_ptr(capsule(handle, None, None))
        assert type(made) is torch.Tensor and made.is_cuda
        return made.requires_grad_(requires_grad)

    def contents(self, host):
        """The bytes below a tensor without gaps."""
        size = host.numel()
        flat = torch.as_strided(host.detach(), (size,), (1,), host.storage_offset()).clone()
        return bytes(flat.view(torch.uint8).numpy()) if size else b""

    def tensor(self, host, index=0, requires_grad=False):
        host = host.detach()
        if host.numel() and not host.is_contiguous() and sum((n - 1) * s for n, s in zip(host.shape, host.stride())) + 1 != host.numel():
            whole = torch.empty_strided((host.untyped_storage().nbytes() // host.element_size(),), (1,), dtype=host.dtype)
            whole.copy_(torch.as_strided(host, whole.shape, (1,), 0))  # a view with gaps keeps them
            pointer = self.upload(self.contents(whole), index) + host.storage_offset() * host.element_size()
            return self.over(pointer, host, index, requires_grad)
        if index is None:
            made = torch.Tensor._make_subclass(Tensor, host.clone(), requires_grad)
            made.gpu = self
            return made
        return self.over(self.upload(self.contents(host), index), host, index, requires_grad)

    def move(self, tensor, index):
        """model.to(): the same object, other memory."""
        host = self.to_host(tensor)
        tensor.data = host.clone() if index is None else self.over(self.upload(self.contents(host), index), host).as_subclass(torch.Tensor)
        tensor.index = index

    # -- suture._cuda --

    def current_stream(self, device):
        return self.streams[device]

    @contextlib.contextmanager
    def device(self, index):
        before = self.calls.exec_device()
        self.calls.exec_set_device(index or 0)
        yield
        self.calls.exec_set_device(before)

    def empty_cache(self):
        self.asked.append("empty_cache")

    def empty(self, shape, dtype, index):
        self.asked.append("empty")
        return self.tensor(torch.full(shape, float("nan"), dtype=getattr(torch, dtype)), index)

    def empty_like(self, x, dtype):
        self.asked.append("empty_like")
        if isinstance(x, Array):
            host = np.empty_like(x.numpy(), dtype=dtype)
            return Array(self, host, x.index, x.stream)
        like = torch.empty_strided(x.shape, x.stride(), dtype=getattr(torch, dtype)).fill_(float("nan"))
        return self.tensor(like, x.device.index)

    def contiguous(self, tensor):
        self.asked.append("contiguous")
        return self.tensor(self.to_host(tensor).contiguous(), tensor.device.index)

    def laid_out_like(self, gradient, parameter):
        self.asked.append("laid_out_like")
        like = torch.empty_strided(parameter.shape, parameter.stride(), dtype=gradient.dtype)
        return self.tensor(like.copy_(self.to_host(gradient)), parameter.device.index)

    def show(self, array, index):
        interface = array.__cuda_array_interface__
        dtype = {"<f4": torch.float32, "<f8": torch.float64}[interface["typestr"]]
        size = torch.empty(0, dtype=dtype).element_size()
        like = torch.empty_strided(interface["shape"], [s // size for s in interface["strides"]], dtype=dtype)
        made = self.over(interface["data"][0], like, index)
        made.owner = array  # which has the memory
        return made

    def to_host(self, tensor):
        self.asked.append("to_host")
        index = tensor.device.index
        if index is None:
            return tensor.detach().as_subclass(torch.Tensor).clone()
        size = 0 if tensor.numel() == 0 else 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
        raw = self.download(tensor.data_ptr(), size * tensor.element_size(), self.streams[index])
        if not size:
            return torch.empty(tensor.shape, dtype=tensor.dtype)
        return torch.frombuffer(bytearray(raw), dtype=tensor.dtype).as_strided(tensor.shape, tensor.stride())

    def to_device(self, tensor, like):
        return self.tensor(tensor, like.device.index)
