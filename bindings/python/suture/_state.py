"""
State files taken apart and put together (docs/state-files.md describes the format). The library reads and writes whole
files; what Python needs beyond that is to give the state of known tensors to an optimizer that has more of them, and to
keep a state as a dict of arrays.
"""

from __future__ import annotations

import json
import struct
from typing import Any, Mapping

import numpy as np

from . import _suture

#: Counts that belong to the optimizer, not to a tensor.
COUNTS = ("suture.steps", "suture.skipped_steps")

_TYPES = {"F32": np.float32, "F64": np.float64, "F16": np.float16, "BF16": np.uint16, "I64": np.int64, "U64": np.uint64}


def read(data: bytes) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors by name (copies; bf16 as uint16) and texts of a state."""
    (length,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + length])
    texts = header.pop("__metadata__")
    tensors = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        kind = _TYPES.get(entry["dtype"], np.uint8)
        array = np.frombuffer(data[8 + length + begin : 8 + length + end], dtype=kind)
        tensors[name] = array.reshape(entry["shape"]).copy() if kind is not np.uint8 else array.copy()
    return tensors, texts


def graft(template: bytes, tensors: Mapping[str, np.ndarray], texts: Mapping[str, str]) -> bytes:
    """
    The state ``template`` with other contents of the tensors and texts that are named; names that it does not have are
    left out. What does not fit in size is refused by name.
    """
    (length,) = struct.unpack("<Q", template[:8])
    header: dict[str, Any] = json.loads(template[8 : 8 + length])
    body = bytearray(template[8 + length :])
    for name, array in tensors.items():
        entry = header.get(name)
        if entry is None:
            continue
        begin, end = entry["data_offsets"]
        contents = np.ascontiguousarray(array).tobytes()
        if len(contents) != end - begin:
            raise _suture.MismatchError(
                f"{name} has {len(contents)} bytes, this optimizer has {end - begin} (shape {entry['shape']})"
            )
        body[begin:end] = contents
    metadata = header["__metadata__"]
    metadata.update({key: value for key, value in texts.items() if key in metadata})
    metadata["suture.checksum"] = "0" * 16
    # As the library writes it: the checksum first, no spaces, padded to a multiple of 8.
    text = json.dumps(header, separators=(",", ":"), ensure_ascii=False).encode()
    text += b" " * (-len(text) % 8)
    data = bytearray(struct.pack("<Q", len(text)) + text + body)
    at = data.index(b'"suture.checksum":"') + len(b'"suture.checksum":"')
    data[at : at + 16] = b"%016x" % _suture.checksum(data)
    return bytes(data)


def has_master(tensor: Any) -> bool:
    """The optimizer steps a float32 copy of it."""
    if hasattr(tensor, "dtype"):
        return str(tensor.dtype).endswith("float16")
    return bool(tensor.__cuda_array_interface__["typestr"].endswith("f2"))


def slots(core: Any, tensor: Any) -> list[str]:
    """Names of what the core remembers of one of its tensors."""
    return [name for name in core.state_names() if name != "master" or has_master(tensor)]
