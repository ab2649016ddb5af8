"""The plug-in's public names, plugin_names.yaml: each is there, takes the plug-in's arguments, and is called."""

import ast
import inspect
import sys
import unittest
from pathlib import Path

import several_devices  # noqa: F401
from common_utils import run_in_process
from plugin_calls import SCENARIOS

import torch
from torch.npu import _refused, _variables

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools import plugin_names, variables  # noqa: E402
from tools.plugin_names import TABLE, all_names, find, refusal  # noqa: E402

MISSING, OTHERWISE = TABLE["missing"], TABLE["otherwise"]


def arguments_of(value) -> list[inspect.Parameter] | None:
    """The parameters of a call, None where Python cannot tell."""
    try:
        parameters = list(inspect.signature(value).parameters.values())
    except (TypeError, ValueError):
        return None
    return parameters


def differs(value, wanted: str) -> str:
    """How a call that is right for the plug-in goes wrong here; empty if none does."""
    own = arguments_of(value)
    if own is None:
        return ""
    theirs = ast.parse(f"def f({wanted}): pass").body[0].args
    if theirs.vararg or theirs.kwarg:
        return ""
    names = [a.arg for a in theirs.args]
    if names[:1] == ["ctx"] or (names[:1] == ["self"] and own and own[0].name in ("self", "ctx")):
        names[:1], own = [], own[1:]
    elif inspect.isfunction(value) and own and own[0].name in ("cls", "self") and names[:1] != [own[0].name]:
        own = own[1:]
    kinds = {p.name: p for p in own}
    any_name = any(p.kind is p.VAR_KEYWORD for p in own)
    if any(p.kind is p.VAR_POSITIONAL for p in own) and any_name:
        return ""
    places = [p.name for p in own if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    if places[: len(names)] != names:
        return f"by position {names}, here {places}"
    optional = names[len(names) - len(theirs.defaults) :] if theirs.defaults else []
    optional += [a.arg for a, d in zip(theirs.kwonlyargs, theirs.kw_defaults, strict=True) if d is not None]
    for name in [a.arg for a in theirs.kwonlyargs]:
        if name not in kinds and not any_name:
            return f"no argument {name}"
    for name, parameter in kinds.items():
        needed = parameter.default is parameter.empty and parameter.kind not in (
            parameter.VAR_POSITIONAL,
            parameter.VAR_KEYWORD,
        )
        known = name in names or name in {a.arg for a in theirs.kwonlyargs}
        if needed and (name in optional or not known):
            return f"{name} is needed here"
    return ""


def is_operator(name: str) -> bool:
    leaf = name.removeprefix("torch_npu.")
    return leaf in (*torch.npu._custom_ops.FUNCTIONS, *torch.npu._custom_ops.METHODS)


class TestNames(unittest.TestCase):
    def test_there(self):
        absent = []
        for name, _ in all_names():
            try:
                find(name)
            except (AttributeError, ModuleNotFoundError):
                absent.append(name)
        self.assertEqual(sorted(absent), sorted(MISSING))

    def test_how_many(self):
        names = dict(all_names())
        self.assertEqual(len(names), 799)
        refused = {name for name in names if name not in MISSING and refusal(name)}
        self.assertLessEqual(len(MISSING), 0.01 * len(names))
        self.assertLessEqual(len(refused), 0.16 * len(names), sorted(refused))

    def test_arguments(self):
        wrong = {}
        for name, wanted in all_names():
            home = name if name not in MISSING else None
            if home is None or is_operator(name) or refusal(name) or isinstance(find(name), type(sys)):
                continue
            reason = differs(find(name), wanted)
            if reason:
                wrong[name] = reason
        excused = [find(name) for name in OTHERWISE]
        self.assertEqual({name: why for name, why in wrong.items() if find(name) not in excused}, {})
        self.assertEqual([name for name in OTHERWISE if name not in wrong], [], "they take the plug-in's arguments")

    def test_same_objects(self):
        for owner, homes in TABLE["again"].items():
            for home, leaves in homes.items():
                for leaf in leaves.split():
                    with self.subTest(name=f"{owner}.{leaf}"):
                        first, second = find(f"{owner}.{leaf}"), find(f"{home}.{leaf}")
                        if refusal(f"{owner}.{leaf}"):
                            self.assertEqual(first.__qualname__, second.__qualname__)
                        else:
                            self.assertIs(first, second)

    def test_refusals(self):
        """What cannot be here says so, with its reason, and names what was called."""
        for full, (_, reason) in _refused.TABLE.items():
            with self.subTest(name=full):
                value = find(full.replace("torch.npu.", "torch_npu.npu."))
                with self.assertRaises(NotImplementedError) as caught:
                    needed = [] if inspect.isclass(value) else arguments_of(value)
                    value(*[None for p in needed if p.kind is p.POSITIONAL_OR_KEYWORD])
                self.assertIn(reason, str(caught.exception))
                self.assertIn(full, str(caught.exception))

    def test_documentation(self):
        path = ROOT / "docs" / "plugin_names.md"
        self.assertEqual(path.read_text(), plugin_names.rendered(), "run python -m tools.plugin_names --write")

    def test_variables(self):
        """The environment variables of the plug-in are documented, those without an effect too."""
        known = {v.name for v in variables.read()}
        self.assertEqual([name for name in TABLE["variables"].split() if name not in known], [])


class TestVariables(unittest.TestCase):
    def test_without_effect(self):
        """What changes nothing is told and ends no process."""
        script = "import torch; torch.ones(2, device='npu') + 1; print('done')"
        table = _variables.WITHOUT_EFFECT.items()
        done = run_in_process(script, **{name: "0" if "1" in harmless else "1" for name, (harmless, _) in table})
        self.assertEqual(done.stdout, "done\n", done.stderr)
        for name, (_, reason) in table:
            self.assertRegex(done.stderr, f"{name}=. has no effect here: {reason}")
        quiet = run_in_process(script, **{name: values[0] for name, (values, _) in table})
        self.assertEqual((quiet.stdout, quiet.stderr), ("done\n", ""))

    def test_allocator_options(self):
        script = """
import torch
x = torch.ones(1 << 20, device='npu')
print(all(segment["is_expandable"] for segment in torch.npu.memory_snapshot()))
torch.npu.empty_virt_addr_cache()
"""
        settings = "page_size:1g,expandable_segments:True,base_addr_aligned_kb:0"
        done = run_in_process(script, PYTORCH_NPU_ALLOC_CONF=settings)
        self.assertEqual(done.stdout, "True\n", done.stderr)
        self.assertIn("page_size:1g has no effect here", done.stderr)
        self.assertIn("base_addr_aligned_kb:0 has no effect here", done.stderr)


class TestCalls(unittest.TestCase):
    maxDiff = None

    def test_every_name_is_called(self):
        codes = set()

        def watch(frame, event, argument):
            if event == "call":
                codes.add(frame.f_code)

        failures = {}
        for scenario in SCENARIOS:
            sys.setprofile(watch)
            try:
                scenario()
            except Exception as error:  # the others are called all the same
                failures[scenario.__name__] = f"{type(error).__name__}: {error}"
            finally:
                sys.setprofile(None)
        self.assertEqual(failures, {})

        def called(name: str) -> bool:
            value = find(name)
            owner, _, leaf = name.rpartition(".")
            if leaf == "backward":  # autograd runs it on a thread of its own
                value = find(f"{owner}.forward")
            if inspect.isclass(value) and issubclass(value, torch.autograd.Function):
                value = value.forward
            if not getattr(value, "__module__", "").startswith(("torch.npu", "torch_npu")):
                return True  # upstream's own
            code = getattr(inspect.unwrap(value) if callable(value) else value, "__code__", None)
            if code is None and inspect.isclass(value):
                makers = [vars(c)[m] for c in value.__mro__ for m in ("__new__", "__init__") if m in vars(c)]
                made = [getattr(getattr(m, "__func__", m), "__code__", None) for m in makers]
                return not any(made) or any(m in codes for m in made)
            if code is None:
                return True  # of C, or an attribute
            return code in codes or getattr(value, "__code__", None) in codes

        left = [
            name
            for name, _ in all_names()
            if name not in MISSING and not is_operator(name) and not refusal(name) and not called(name)
        ]
        self.assertEqual(left, [])


if __name__ == "__main__":
    unittest.main()
