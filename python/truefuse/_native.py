"""The C face of the library, and nothing else: finding it, loading it, calling it."""

from __future__ import annotations

import ctypes
import json
import shlex
import site
import sys
import sysconfig
from pathlib import Path
from typing import Any

import torch

_PACKAGE = Path(__file__).resolve().parent


def _torch_minor() -> str:
    return ".".join(torch.__version__.split("+")[0].split(".")[:2])


def _library_name() -> str:
    abi = int(torch._C._GLIBCXX_USE_CXX11_ABI)
    return f"libtruefuse_torch-{_torch_minor()}-cxx11abi{abi}.so"


def library_path() -> Path:
    """The library built for the PyTorch that is imported. Raises ImportError in one sentence."""
    path = _PACKAGE / "lib" / _library_name()
    if path.is_file():
        return path
    built = sorted(p.name for p in (_PACKAGE / "lib").glob("libtruefuse_torch-*.so"))
    raise ImportError(
        f"truefuse is built for {', '.join(built) or 'no PyTorch at all'}, but this is PyTorch "
        f"{torch.__version__} ({_library_name()} is wanted): rebuild it for this PyTorch with "
        f"`{shlex.quote(sys.executable)} -m pip install --no-build-isolation --no-deps --force-reinstall "
        "<truefuse source folder>`"
    )


def _site_dirs() -> list[str]:
    candidates = [*site.getsitepackages(), sysconfig.get_paths()["purelib"], *sys.path]
    return list(dict.fromkeys(c for c in candidates if c.endswith(("-packages", "/site"))))


torch.ops.load_library(str(library_path()))
_torch_library = ctypes.CDLL(str(library_path()))

_STREAM_FALLBACK = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_int)


def _declare(name: str, *arguments: Any, result: Any = ctypes.c_void_p) -> Any:
    # Symbols of the engine are reachable through the library that depends on it.
    function = getattr(_torch_library, name)
    function.argtypes = list(arguments)
    function.restype = result
    return function


_free = _declare("truefuse_free", ctypes.c_void_p, result=None)
_version = _declare("truefuse_version", result=ctypes.c_char_p)
_set_search_paths = _declare(
    "truefuse_set_search_paths", ctypes.c_char_p, ctypes.c_char_p, result=None
)
_operators = _declare("truefuse_operators")
_contract = _declare("truefuse_contract", ctypes.c_char_p)
_toolchains = _declare("truefuse_toolchains")
_refusal = _declare("truefuse_refusal", ctypes.c_char_p, ctypes.c_char_p)
_compile = _declare(
    "truefuse_compile",
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_char_p,
    ctypes.c_int,
)
_cache = _declare("truefuse_cache")
_cache_why = _declare("truefuse_cache_why", ctypes.c_char_p)
_cache_clear = _declare("truefuse_cache_clear")
_cache_costs = _declare("truefuse_cache_costs")
_statistics = _declare("truefuse_statistics")
_devices = _declare("truefuse_devices")
_prepare = _declare("truefuse_prepare", ctypes.c_char_p, ctypes.c_int)
_cpu = _declare("truefuse_torch_cpu")
_current_stream = _declare("truefuse_torch_current_stream", ctypes.c_int)
_set_stream_fallback = _declare("truefuse_torch_set_stream_fallback", _STREAM_FALLBACK, result=None)

_set_search_paths(
    str(Path(torch.__file__).parent / "lib").encode(), "\n".join(_site_dirs()).encode()
)


@_STREAM_FALLBACK
def _stream_from_python(device: int) -> int:
    return torch._C._cuda_getCurrentRawStream(device)


if hasattr(torch._C, "_cuda_getCurrentRawStream"):
    _set_stream_fallback(_stream_from_python)


def _answer(pointer: int) -> Any:
    """Takes over a JSON text of the library. Raises RuntimeError if it holds an error."""
    try:
        answer = json.loads(ctypes.string_at(pointer))
    finally:
        _free(pointer)
    if isinstance(answer, dict) and "error" in answer:
        raise RuntimeError(answer["error"])
    return answer


def version() -> str:
    return _version().decode()


def operators() -> list[dict[str, Any]]:
    """All registered operators: namespace, name, schema, summary, contract, variants."""
    return _answer(_operators())


def contract(text: str) -> dict[str, Any]:
    """A contract as data. Raises RuntimeError that says what is wrong with the text, and where."""
    return _answer(_contract(text.encode()))


def toolchains() -> list[dict[str, Any]]:
    """The run-time compilers: name, found, path, version, works, problem, remedy, default_arch."""
    return _answer(_toolchains())


def refusal(arch: str, compiler: str | None = None) -> str:
    """Empty if something here compiles for ``arch``; else why not, and what to install."""
    return _answer(_refusal(arch.encode(), (compiler or "").encode()))["refusal"]


def compile(
    operator: str, arch: str, label: str, compiler: str | None = None, cache: bool = True
) -> dict[str, Any]:
    """Compiles one variant of an operator; ``ok`` is False and ``error`` says why if it fails."""
    try:
        answer = _answer(
            _compile(
                operator.encode(),
                arch.encode(),
                label.encode(),
                (compiler or "").encode(),
                int(cache),
            )
        )
    except RuntimeError as error:
        return {"ok": False, "error": str(error)}
    return {"ok": True, "error": None, **answer}


def cache() -> dict[str, Any]:
    """The cache folder, why others were passed over, and its entries."""
    return _answer(_cache())


def cache_why(operator: str) -> list[dict[str, Any]]:
    """For each cache entry of an operator, whether it is current, and else what differs."""
    return _answer(_cache_why(operator.encode()))


def cache_clear() -> int:
    """Removes all entries; returns how many there were."""
    return _answer(_cache_clear())["removed"]


def cache_costs() -> dict[str, Any]:
    """What each valid entry cost to compile, and costs to look up now, in seconds."""
    return _answer(_cache_costs())


def statistics() -> dict[str, dict[str, float]]:
    """What compiling, looking up and loading kernels has cost this process."""
    return _answer(_statistics())


def devices() -> dict[str, Any]:
    """The driver and its devices. Raises RuntimeError where there is no driver."""
    return _answer(_devices())


def prepare(operator: str, device: int) -> None:
    _answer(_prepare(operator.encode(), device))


def cpu() -> dict[str, Any]:
    """Instruction-set level of the CPU paths and the number of threads they use."""
    return _answer(_cpu())


def current_stream(device: int) -> dict[str, Any]:
    """PyTorch's current stream as the library sees it, and how it asked."""
    return _answer(_current_stream(device))
