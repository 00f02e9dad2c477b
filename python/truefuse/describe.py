"""Operators that a text describes: `truefuse.load("my_op/")`.

A folder holds `description.txt` (engine/description/description.h says what it may say), the sources
that it names, and `case.py` with the Python functions that it names. Everything is checked before
anything is registered.
"""

from __future__ import annotations

import ctypes
import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from truefuse import _native, simulate, source_file
from truefuse._vmap import register_vmap

DESCRIPTION = "description.txt"
CASE = "case.py"
Function = Callable[..., Any]
_ENTRIES = {"cpu": "cpu", "cuda": "gpu"}  # of a description: the function for a type of device


class _File(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("text", ctypes.c_char_p))


_FILES = ctypes.POINTER(_File)
_TEXT = ctypes.c_char_p
_declare = _native._declare
_describe_folder = _declare("truefuse_describe_folder", _TEXT, _TEXT, _TEXT, _TEXT)
_describe_texts = _declare(
    "truefuse_describe_texts", _TEXT, _TEXT, _FILES, ctypes.c_int, _TEXT, _TEXT
)
_describe_replace = _declare("truefuse_describe_replace", ctypes.c_int, _TEXT, _FILES, ctypes.c_int)
_register = _declare("truefuse_torch_describe", ctypes.c_int, ctypes.c_int)


@dataclass(repr=False)
class Described:
    """A described operator: call it as `torch.ops.<namespace>.<name>`, which it is. Each has a docstring of
    its own: help(it), or `it?` in a notebook."""

    name: str  # "my_ops::bias_gelu"
    origin: str  # the folder, or what stands for it
    functions: dict[str, Function]  # the Python functions that the description names
    module: ModuleType | None  # case.py
    facts: dict[str, Any]
    backward: Described | None = None

    def __post_init__(self) -> None:
        self.overload: Any = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.overload(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<truefuse operator {self.facts['namespace']}::{self.facts['schema']}>"

    @property
    def reference(self) -> Function:
        return self.functions[self.facts["reference"]]


_loaded: dict[str, Described] = {}
_libraries: list[torch.library.Library] = []  # implementations live as long as these


def is_folder(path: str | Path) -> bool:
    return Path(path).is_dir() and (Path(path) / DESCRIPTION).is_file()


def is_simulated(name: str | None) -> bool:
    """Whether CPU tensors run in the simulator: a described operator without a path of its own for them."""
    return name in _loaded and has_kernel(name) and not _loaded[name].facts["cpu"]


def has_kernel(name: str | None) -> bool:
    """Whether it is truefuse that runs a kernel, not a Python function of a description."""
    return name not in _loaded or _loaded[name].facts["has_kernel"]


def runs_on(name: str | None, device: str) -> bool:
    """Whether an operator without a kernel names a function for tensors on that type of device."""
    return has_kernel(name) or bool(_loaded[name or ""].facts[_ENTRIES[device]])


def load(
    source: str | Path,
    *,
    kernel: str | None = None,
    files: Mapping[str, str] | None = None,
    functions: Mapping[str, Function] | None = None,
    name: str | None = None,
    namespace: str | None = None,
) -> Described:
    """Reads a described operator, checks it, and registers it as `torch.ops.<namespace>.<name>`.

    Args:
        source: a folder with `description.txt`; or the description itself, as in a notebook. Then
            `kernel` is the text of the kernel source that it names, `files` further sources by name (what the
            kernel includes, the C++ file of `plan:`),
            and `functions` the Python functions that it names.
        name, namespace: instead of those in the description, so that two versions live side by side.

    Returns:
        A callable; the operator also works through `torch.ops`, autograd and `torch.compile`. On CUDA,
        ROCm and DCU devices it runs its kernel, compiled at the first call, or the function that `gpu:`
        names in place of a kernel. On CPU tensors it runs the function that the description's `cpu:`
        names, else its kernel in the simulator, and warns.

    A folder's description and sources may be edited: the next call uses what they say, or raises
    what is wrong with them. Loading the same folder or name again gives the same object; texts are then
    replaced. Schema, contract and the functions stay as they were first.

    Raises:
        RuntimeError: what is wrong, with file, line and place. Nothing is registered then.
    """
    if isinstance(source, str) and "\n" in source:
        return _load_texts(
            source, kernel, dict(files or {}), dict(functions or {}), name or "", namespace or ""
        )
    if not is_folder(source):
        raise RuntimeError(f"load: '{source}' is no folder with a {DESCRIPTION}")
    if kernel is not None or files or functions:
        raise RuntimeError(
            "load: a folder has its files; kernel, files and functions are for texts"
        )
    return _load_folder(Path(source), name or "", namespace or "")


def _load_folder(folder: Path, name: str, namespace: str) -> Described:
    facts = _read_folder(folder, DESCRIPTION, name, namespace)
    known = _loaded.get(_full_name(facts))
    if known is not None and known.origin == facts["origin"]:
        return known
    module = _module_of(Path(facts["origin"]))
    functions = {} if module is None else {k: v for k, v in vars(module).items() if callable(v)}
    where = f"{Path(facts['origin']).name}/{CASE}"
    if module is None:
        where += ", which is not there,"
    backward = None
    if facts["backward_file"]:
        other = f"{facts['name']}_backward" if name else ""
        facts_of_backward = _read_folder(folder, facts["backward_file"], other, namespace)
        backward = _described(facts_of_backward, functions, module, where)
    return _registered(_described(facts, functions, module, where), backward)


def _read_folder(folder: Path, file: str, name: str, namespace: str) -> dict[str, Any]:
    arguments = (str(folder), file, namespace, name)
    return _native._answer(_describe_folder(*(text.encode() for text in arguments)))


def _load_texts(
    text: str,
    kernel: str | None,
    files: dict[str, str],
    functions: dict[str, Function],
    name: str,
    namespace: str,
) -> Described:
    operator = re.search(r"^operator:\s*\w+::(\w+)", text, re.MULTILINE)
    named = re.search(r"^kernel:\s*(\S+)", text, re.MULTILINE)
    if kernel is not None:
        files[named[1] if named else "kernel.hip"] = kernel
    origin = operator[1] if operator else "text"
    sources = (_File * max(len(files), 1))(
        *(_File(key.encode(), value.encode()) for key, value in files.items())
    )
    facts = _native._answer(
        _describe_texts(
            origin.encode(), text.encode(), sources, len(files), namespace.encode(), name.encode()
        )
    )
    if facts["backward_file"]:
        raise RuntimeError(
            f"{origin}/description: a backward in another description needs a folder; here name a function"
        )
    described = _described(facts, functions, None, "load(..., functions={...})")
    known = _loaded.get(described.name)
    if known is None or known.module is not None:
        return _registered(described, None)
    _native._answer(_describe_replace(known.facts["handle"], text.encode(), sources, len(files)))
    known.functions.update(functions)
    return known


def _full_name(facts: dict[str, Any]) -> str:
    return f"{facts['namespace']}::{facts['name']}"


def _described(
    facts: dict[str, Any], functions: dict[str, Function], module: ModuleType | None, where: str
) -> Described:
    """Raises RuntimeError for a function that is missing."""
    for entry in ("reference", "cpu", "gpu", "backward"):
        wanted = facts[entry]
        if wanted and not callable(functions.get(wanted)):
            raise RuntimeError(
                f"{_full_name(facts)}: the description names {wanted} as its {entry}, but {where} has no "
                f"function {wanted}"
            )
    return Described(_full_name(facts), facts["origin"], functions, module, facts)


def _module_of(folder: Path) -> ModuleType | None:
    path = folder / CASE
    if not path.is_file():
        return None
    try:
        return source_file.run(path)
    except Exception as error:
        raise RuntimeError(source_file.raised(path, error)) from error


def _registered(described: Described, backward: Described | None) -> Described:
    handle = -1 if backward is None else backward.facts["handle"]
    answer = _native._answer(_register(described.facts["handle"], handle))
    for one in (backward, described):
        if one is not None:
            _finish(one)
    if described.facts["backward"]:
        _implement_backward(described, answer["backward"])
    described.backward = backward
    described.__doc__ = _document(described)
    return described


def _finish(described: Described) -> None:
    namespace, name = described.name.split("::")
    described.overload = getattr(getattr(torch.ops, namespace), name).default
    _loaded[described.name] = described
    if not any(a.get("mutated") for a in described.facts["contract"]["arguments"]):
        register_vmap(described.name)
    for device, entry in _ENTRIES.items():
        if described.facts[entry]:
            function = functools.partial(_by_function, described, entry)
        elif described.facts["has_kernel"]:
            continue
        else:
            function = functools.partial(_refuse, described, device, entry)
        _implement(described.name, device.upper(), lambda *a, _f=function, **k: _f(a, k))


def _document(described: Described) -> str:
    """What whoever calls the operator has to know, from the description alone."""
    facts = described.facts
    summary = next(
        operator["summary"]
        for operator in _native.operators()
        if f"{operator['namespace']}::{operator['name']}" == described.name
    )
    kernel = "its kernel" if facts["has_kernel"] else "refused"
    gradients = facts["gradients"]
    if described.backward:
        outputs = described.backward.facts["contract"]["outputs"]
        gradients = [output["name"].removeprefix("grad_") for output in outputs]
    lines = (
        facts["schema"],
        "",
        summary,
        "",
        facts["contract"]["text"],
        "",
        f"gradients    {', '.join(gradients) or 'refused'}",
        f"on a GPU     {facts['gpu'] or kernel}",
        f"on the CPU   {facts['cpu'] or (kernel + ', in the simulator' * facts['has_kernel'])}",
        f"described in {facts['origin']}",
    )
    return "\n".join(lines)


def _implement(name: str, key: str, function: Function) -> None:
    namespace, name = name.split("::")
    library = torch.library.Library(namespace, "FRAGMENT")
    library.impl(name, function, key)
    _libraries.append(library)


def _call(
    described: Described, entry: str, grads: list[Tensor], values: list[Any]
) -> tuple[Any, ...]:
    """A function of the description, called as a case's functions are: tensors in order, then scalars
    by name. Its results as a tuple."""
    arguments = described.facts["contract"]["arguments"]
    pairs = list(zip(arguments, values, strict=True))
    tensors = [value for argument, value in pairs if argument["kind"] == "tensor"]
    mode = {a["name"]: value for a, value in pairs if a["kind"] != "tensor"}
    # Triton, and kernels launched by hand, go to the current device.
    first = next(value for value in (*grads, *tensors) if isinstance(value, Tensor))
    with torch.cuda.device_of(first):
        result = described.functions[described.facts[entry]](*grads, *tensors, **mode)
    return result if isinstance(result, tuple) else (result,)


def _refuse(described: Described, device: str, entry: str, args: Any, kwargs: Any) -> Any:
    raise RuntimeError(
        f"{described.name}: its description names no function for tensors on the device type {device}; "
        f"name one in '{entry}:', or give it a kernel"
    )


def _by_function(described: Described, entry: str, args: Any, kwargs: dict[str, Any]) -> Any:
    """A function that stands for the kernel: under the contract, and held to what it promises."""
    values = simulate.bound(described.overload._schema, args, kwargs)
    promised = simulate.promised(described.name, values)
    results = _call(described, entry, [], values)
    if not promised and results == (None,):
        return None  # it changes its arguments and gives nothing
    outputs = described.facts["contract"]["outputs"]
    name = described.facts[entry]
    if len(results) != len(promised):
        raise RuntimeError(
            f"{described.name}: {name} returns {len(results)} results; the contract has "
            f"{len(promised)} outputs"
        )
    names = [argument["name"] for argument in described.facts["contract"]["arguments"]]
    taken = {value.untyped_storage()._cdata for value in values if isinstance(value, Tensor)}
    finished = []
    for result, output, want in zip(results, outputs, promised, strict=True):
        found = (list(result.shape), str(result.dtype).removeprefix("torch."))
        if found != (want["sizes"], want["dtype"]):
            raise RuntimeError(
                f"{described.name}: {name} returns {want['name']} as {found[1]} {found[0]}; "
                f"the contract wants {want['dtype']} {want['sizes']}"
            )
        like = values[names.index(output["like"])] if output["layout"] == "dense" else None
        finished.append(_placed(result, like, taken))
    return tuple(finished) if len(finished) != 1 else finished[0]


def _placed(result: Tensor, like: Tensor | None, taken: set[int]) -> Tensor:
    """`result` in memory of its own, with strides as `like` has them or contiguous; itself, if it is so."""
    if like is None:
        wanted = _contiguous(result.shape)
    else:
        wanted = torch.empty_like(like, device="meta").stride()
    memory = result.untyped_storage()
    is_whole = memory.nbytes() == result.numel() * result.element_size()
    if result.stride() == wanted and is_whole and memory._cdata not in taken:
        taken.add(memory._cdata)
        return result
    return torch.empty_strided(
        result.shape, wanted, dtype=result.dtype, device=result.device
    ).copy_(result)


def _contiguous(shape: torch.Size) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= max(size, 1)
    return tuple(reversed(strides))


def _implement_backward(described: Described, name: str) -> None:
    outputs = len(described.facts["contract"]["outputs"])
    arguments = described.facts["contract"]["arguments"]
    names = [argument["name"] for argument in arguments]
    gradients = described.facts["gradients"]

    def backward(*values: Any) -> Any:
        grads, rest = list(values[:outputs]), list(values[outputs:])
        inputs, wanted = rest[: len(arguments)], rest[len(arguments) :]
        results = _call(described, "backward", grads, inputs)
        if len(results) != len(gradients):
            raise RuntimeError(
                f"{described.name}: {described.facts['backward']} returns {len(results)} gradients; the "
                f"description promises {', '.join(gradients)}"
            )
        finished = []
        for result, argument, is_wanted in zip(results, gradients, wanted, strict=True):
            of = inputs[names.index(argument)]
            if not is_wanted or result is None:
                finished.append(grads[0].new_empty(0))
                continue
            if result.shape != of.shape:
                raise RuntimeError(
                    f"{described.name}: {described.facts['backward']} returns the gradient of {argument} as "
                    f"{list(result.shape)}; {argument} is {list(of.shape)}"
                )
            finished.append(result.to(of.dtype).contiguous())
        return tuple(finished) if len(finished) != 1 else finished[0]

    # Ordinary operations of PyTorch, so that gradients of gradients follow from them.
    _implement(name, "CompositeImplicitAutograd", backward)
