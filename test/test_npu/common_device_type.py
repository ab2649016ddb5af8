"""Decorators of the fork's operator tests: a test method receives the device, and each dtype or format it asks for."""

import functools
import inspect


def dtypes(*args):
    """Run the test once per dtype; it receives ``(self, device, dtype)``."""

    def decorate(test):
        test.dtypes = args
        return test

    return decorate


def formats(*args):
    """Run the test once per format number; it receives ``(self, device, npu_format)``."""

    def decorate(test):
        test.formats = args
        return test

    return decorate


def instantiate_device_type_tests(generic_class: type, scope: dict, except_for=None, only_for=None) -> None:
    """Put a class ``<name>NPU`` (and ``<name>CPU``) into ``scope``, whose tests receive the device.

    ``except_for`` and ``only_for`` name device types ("cpu", "npu"), one or several; by default only npu is made.
    """
    wanted = {"npu"} if only_for is None else _names(only_for)
    wanted -= _names(except_for)
    scope.pop(generic_class.__name__, None)
    for device in sorted(wanted):
        members = {"__module__": scope.get("__name__", generic_class.__module__)}
        for name, test in inspect.getmembers(generic_class, inspect.isfunction):
            if name.startswith("test"):
                members[name] = None  # hides the generic one, which unittest would call without a device
                members.update(_variants(name, test, device))
        class_name = f"{generic_class.__name__}{device.upper()}"
        scope[class_name] = type(class_name, (generic_class,), members)


def _names(value) -> set[str]:
    if value is None:
        return set()
    return {value} if isinstance(value, str) else set(value)


def _variants(name: str, test, device: str) -> dict:
    if "device" not in inspect.signature(test).parameters:
        return {name: test}
    made = {}
    for keyword, values in (("dtype", getattr(test, "dtypes", None)), ("npu_format", getattr(test, "formats", None))):
        for value in values or ():
            suffix = str(value).removeprefix("torch.")
            made[f"{name}_{device}_{suffix}"] = _bind(test, device, **{keyword: value})
    return made or {f"{name}_{device}": _bind(test, device)}


def _bind(test, device: str, **more):
    @functools.wraps(test)
    def bound(self):
        return test(self, device, *more.values())

    return bound
