"""Decorators of operator tests: a test runs once for each dtype and format that it asks for."""

import functools
import inspect
import itertools

from torch.npu import _refused

globals().update(_refused.members(__name__))


class Dtypes:
    """The dtypes of a test; it receives one as ``dtype``."""

    def __init__(self, *args):
        self.args = args

    def __call__(self, fn):
        fn.dtypes = self.args
        return fn


class Formats:
    """The format numbers of a test; it receives one as ``npu_format``."""

    def __init__(self, *args):
        self.args = args

    def __call__(self, fn):
        fn.formats = self.args
        return fn


def feed_data(func, new_name, *args, **kwargs):
    """Return a test ``new_name`` that calls ``func`` with these arguments."""

    @functools.wraps(func)
    def fed(self):
        return func(self, *args, **kwargs)

    del fed.__wrapped__  # unittest and pytest would see the arguments
    fed.__name__ = new_name
    return fed


def _spread(cls, choices):
    # Puts in the place of each test its variants: choices(function) gives lists of values by keyword.
    for name, func in list(vars(cls).items()):
        if not name.startswith("test") or not inspect.isfunction(func):
            continue
        by_name = choices(func)
        if not by_name:
            continue
        delattr(cls, name)
        for values in itertools.product(*by_name.values()):
            suffix = "_".join(
                str(getattr(value, "name", value)).replace("torch.", "").replace(".", "_") for value in values
            )
            setattr(
                cls, f"{name}_{suffix}", feed_data(func, f"{name}_{suffix}", **dict(zip(by_name, values, strict=True)))
            )
    return cls


def instantiate_tests(arg=None, **kwargs):
    """Decorate a class: each of its tests with dtypes or formats is replaced by one for each combination of them.

    Args:
        arg: the class, where the decorator is used without arguments.
        **kwargs: further lists of values, by the name of the tests' argument.
    """

    def choices(func):
        names = {"dtype": getattr(func, "dtypes", ()), "npu_format": getattr(func, "formats", ()), **kwargs}
        return {name: values for name, values in names.items() if values and name in inspect.signature(func).parameters}

    return (lambda cls: _spread(cls, choices)) if arg is None else _spread(arg, choices)


def instantiate_ops_tests(op_db):
    """Decorate a class: each test that takes ``op`` runs for each entry of a database of operators like upstream's.

    With ``dtype`` it runs for the test's dtypes, or for float32 without any.
    """

    def choices(func):
        import torch

        wanted = inspect.signature(func).parameters
        names = {"dtype": getattr(func, "dtypes", (torch.float32,)), "op": list(op_db)}
        return {name: values for name, values in names.items() if name in wanted} if "op" in wanted else {}

    return lambda cls: _spread(cls, choices)
