"""A plain function as a workload: each call is a step, its arguments are the inputs, what it returns is the output.

What must not live here: importing functions (load.py), and how values become arrays (values.py).
"""

from __future__ import annotations

import importlib
import inspect
import pickle
import random
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from aiperf.protocol.arguments import SEED, names_of, not_in_order, seeded, shared_out
from aiperf.protocol.messages import WorkloadCall
from aiperf.worker import arrays, values
from aiperf.workloads.contract import Array, Context, Work, Workload


class NotAWorkload(TypeError):
    """A named function is not one that aiperf can run; the text ends with what to write."""


class _Unset:
    """What stands where nothing was returned yet."""


class PlainFunction:
    """A plain function with its arguments, as a worker drives it."""

    def __init__(self, function: Callable[..., Any], setup: Callable[..., Any] | None, call: WorkloadCall) -> None:
        """Raises NotAWorkload where there is no way to call the function with what is given."""
        self._function, self._setup, self._call = function, setup, call
        self._name = call.workload.rpartition(":")[2] or call.workload
        self._given: tuple[tuple[Any, ...], dict[str, Any]] = ((), {})
        if call.arguments:
            self._given = _unpickled(Path(call.arguments))
        self._args: tuple[Any, ...] = ()
        self._kwargs: dict[str, Any] = {}
        self._seed: int | None = None
        self._result: Any = _Unset
        self._facts: dict[str, Any] = {"inputs": self._origin()}

    def workload(self, seed: int) -> Workload:
        """The workload, with the arguments that ``seed`` gives."""
        self.make_arguments(seed)
        return Workload(
            step=self.step,
            work=Work(),
            outputs=self.outputs,
            inputs=self.inputs,
            one_input=True,
            redraw=None if self._setup is None else self.redraw,
            reset=self.forget,
            poison=False,  # forget() does what can be done to returned values
            kept_outputs="each call returns anew; arrays that were returned before are overwritten",
            facts=self._facts,
        )

    def step(self) -> None:
        """One call."""
        self._result = self._function(*self._args, **self._kwargs)

    def outputs(self) -> Mapping[str, Array]:
        """What the latest call returned, as arrays. Raises NotComparable and LazyOutput."""
        if isinstance(self._result, Workload):
            what = f"{self._name} returned a Workload, but does not take a context"
            raise NotAWorkload(f"{what}. Write def {self._name}(context: Context, ...) -> Workload:")
        if self._result is _Unset:
            return {}
        self._facts["returns"] = values.described(self._result) if self._result is not None else None
        return values.encode(self._result, "result")

    def inputs(self) -> Mapping[str, Array]:
        """The arguments, as arrays; what is no data is left out."""
        return values.encode([list(self._args), self._kwargs], "arguments", lenient=True)

    def forget(self) -> None:
        """Overwrite what was returned last, where that is an array of its own, so that a cached one shows."""
        if self._result is _Unset:
            return
        held = {id(array) for array in self.inputs().values()}
        for array in values.encode(self._result, "result", lenient=True).values():
            if id(array) not in held and _is_own(array):
                with suppress(ValueError, RuntimeError):  # read-only
                    arrays.poison(array)
        self._result = _Unset

    def make_arguments(self, seed: int) -> None:
        """The arguments of the function, from its set-up where it has one. Raises NotAWorkload."""
        self._seed = seed
        args, named = self._given
        if self._setup is None:
            self._args, self._kwargs = self._bound(args, {**self._call.params, **named})
            return
        own, given = shared_out(named, function=names_of(self._function), setup=names_of(self._setup))
        args, made = self._made(self._setup, seed, {**self._call.setup_params, **given})
        own = not_in_order(self._function, {**self._call.params, **own}, given=len(args))
        self._args, self._kwargs = self._bound(args, {**own, **made})

    def redraw(self, seed: int) -> None:
        """Other arguments, and the fact that they are not, where the set-up gives the same for every seed."""
        before, former = {name: arrays.digest(array) for name, array in self.inputs().items()}, self._seed
        self.make_arguments(seed)
        if seed != former and before == {name: arrays.digest(array) for name, array in self.inputs().items()}:
            self._facts["inputs"] = f"made by {self._call.setup.rpartition(':')[2]}, the same for every seed"

    def _made(
        self, setup: Callable[..., Any], seed: int, kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Arguments in order and by name that the set-up makes, given ``kwargs`` and the seed."""
        name = self._call.setup.rpartition(":")[2]
        args, own = seeded(setup, self._given[0], seed)
        kwargs = {**kwargs, **own}
        seed_libraries(seed)
        try:
            inspect.signature(setup).bind(*args, **kwargs)
        except TypeError as error:
            advice = f"Write def {name}(seed, ...):"
            if SEED in names_of(setup) and (missing := _missing(setup, len(args), kwargs)):
                advice = f"Give {', '.join(missing)} under params:, or in Python by params={{...}}."
            raise NotAWorkload(f"{name} cannot be called: {error}. {advice}") from None
        except ValueError:
            pass
        found = setup(*args, **kwargs)
        if isinstance(found, Workload):
            raise NotAWorkload(f"{name} returned a Workload, not arguments. Name it as the workload, without setup.")
        if found is None:
            return (), {}
        if isinstance(found, tuple):
            return found, {}
        return ((), found) if isinstance(found, dict) and all(isinstance(k, str) for k in found) else ((found,), {})

    def _bound(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        try:
            signature = inspect.signature(self._function)
        except (ValueError, TypeError):  # of C, without one
            return args, kwargs
        only = [n for n, p in signature.parameters.items() if p.kind is p.POSITIONAL_ONLY and n in kwargs]
        args = (*args, *(kwargs.pop(name) for name in only))
        try:
            signature.bind(*args, **kwargs)
        except TypeError as error:
            what = f"{self._name}{signature} cannot be called: {error}"
            raise NotAWorkload(f"{what}. {self._advice(args, kwargs)}") from None
        return args, kwargs

    def _advice(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        if self._setup is None:
            return "Write setup: ./file.py:function, which makes its arguments from a seed, or params: {name: value}."
        name = self._call.setup.rpartition(":")[2]
        unknown = [n for n in self._given[1] if n in kwargs and n not in names_of(self._function)]
        if unknown:
            return f"Neither it nor {name} takes {', '.join(unknown)}: name what params= gives in one of them."
        got = f"{len(args)} in order" if args else f"{', '.join(kwargs) or 'none'} by name"
        return (
            f"{name} gave {got}: a tuple holds the arguments in order, a dict those by name. "
            "Write return (value,) to pass a tuple or a dict as the only one."
        )

    def _origin(self) -> str:
        if self._setup is None:
            return (
                "as given, floating-point arrays redrawn in audits" if self._call.arguments else "not redrawn: no setup"
            )
        return f"made anew by {self._call.setup.rpartition(':')[2]} in audits"


def plain_workload(
    function: Callable[..., Any], setup: Callable[..., Any] | None, call: WorkloadCall, context: Context
) -> Workload:
    """A plain function as a workload. Raises NotAWorkload where it cannot be called."""
    return PlainFunction(function, setup, call).workload(context.seed)


def _unpickled(path: Path) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments that the very run wrote which started this worker."""
    try:
        args, kwargs = pickle.loads(path.read_bytes())
    except (AttributeError, ImportError) as error:
        what = f"the arguments cannot be read in a fresh process: {error}"
        raise NotAWorkload(f"{what}. Write setup=, a function of a module that makes them") from None
    return tuple(args), dict(kwargs)


def _missing(function: Callable[..., Any], given: int, named: Mapping[str, Any]) -> list[str]:
    """Parameters that have no default and get no value, of which ``given`` are given in order."""
    known = [
        p for p in inspect.signature(function).parameters.values() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    ]
    return [p.name for p in known[given:] if p.default is p.empty and p.name not in named]


def seed_libraries(seed: int) -> None:
    """Seed the generators of Python and of the libraries that are loaded."""
    random.seed(seed)
    # numpy loads this part of it only when it is first asked for.
    for library, module, function in (("numpy", "numpy.random", "seed"), ("torch", "torch", "manual_seed")):
        if library in sys.modules:
            getattr(importlib.import_module(module), function)(seed % 2**32)


def _is_own(array: Any) -> bool:
    """Whether the memory of an array is nobody else's, as far as the array knows: not a view, not a parameter."""
    if arrays.kind(array) == "torch":
        return type(array).__name__ == "Tensor" and not array._is_view()
    return array.base is None
