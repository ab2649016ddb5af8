"""Decorators of operator tests: a test runs once for each dtype and format that it asks for."""

import functools
import inspect
import itertools

import torch


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


def gen_op_input(testcase, func, op_info):
    """Return what a test of an operator runs for, as ``{"dtype": dtypes, "npu_format": formats}``.

    Args:
        testcase: the test's name. One with ``test_variant_consistency_eager`` runs for one dtype, float32 if it can.
        func: the test; its own dtypes and formats come first.
        op_info: the operator's entry in a database like upstream's; its are ``dtypesIfNPU`` or ``dtypes``, ``formats``.
    """
    of_op = getattr(op_info, "dtypesIfNPU", None) or op_info.dtypes
    dtypes = getattr(func, "dtypes", None) or of_op
    if "test_variant_consistency_eager" in testcase:
        dtypes = (torch.float32,) if torch.float32 in of_op else tuple(of_op)[-1:]
    return {"dtype": dtypes, "npu_format": getattr(func, "formats", None) or getattr(op_info, "formats", (2,))}


def gen_ops_testcase(cls, func, name, keys, value, op_info):
    """Put the test ``<test>_<name>_<dtype>_<format>`` of an operator on a class, under the decorators of its entry.

    Args:
        cls, func, name: the class, its test, the operator's name.
        keys, value: names and values of the arguments, one combination of :func:`gen_op_input`.
        op_info: the operator's entry, which the test gets as ``op``.
    """
    given = dict(zip(keys, value, strict=True))
    suffix = "_".join(str(given[key]).replace("torch.", "") for key in ("dtype", "npu_format") if key in given)
    test_name = f"{func.__name__}_{name}" + (f"_{suffix}" if suffix else "")
    test = feed_data(func, test_name, op=op_info, **given)
    for decorate in op_info.get_decorators(cls.__name__, func.__name__, "cpu", given.get("dtype"), {}):
        test = decorate(test)
    setattr(cls, test_name, test)


def instantiate_ops_tests(op_db):
    """Decorate a class: each test that takes ``op`` runs for each entry of a database of operators like upstream's.

    With ``dtype`` it runs for the test's dtypes, or for float32 without any.
    """

    def choices(func):
        wanted = inspect.signature(func).parameters
        names = {"dtype": getattr(func, "dtypes", (torch.float32,)), "op": list(op_db)}
        return {name: values for name, values in names.items() if name in wanted} if "op" in wanted else {}

    return lambda cls: _spread(cls, choices)
