"""Type checkers and editors are told the names and signatures that torch.npu and its bindings have."""

import ast
import inspect
import unittest
from pathlib import Path

import torch


def declared(path: Path) -> dict[str, ast.AST]:
    """The functions, classes and variables of a stub file, by name."""
    found: dict[str, ast.AST] = {}
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found[node.name] = node
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            found[node.target.id] = node
    return found


class TestTyping(unittest.TestCase):
    def test_bindings(self):
        stub = {
            n: node
            for n, node in declared(Path(torch.__file__).parent / "_C/__init__.pyi").items()
            if "npu" in n.lower()
        }
        bound = {name for name in dir(torch._C) if name.lower().startswith("_npu")}
        self.assertEqual(bound, {name for name in stub if name.lower().startswith("_npu")})
        for name in bound:
            node, binding = stub[name], getattr(torch._C, name)
            if isinstance(node, ast.FunctionDef):
                said = binding.__doc__.split("\n")[0].partition(" -> ")[0]
                count = len(node.args.posonlyargs) + len(node.args.args)
                # pybind11 writes each argument as "name: type".
                self.assertEqual(count, said.count(": "), f"{name}: {said}")
            elif isinstance(node, ast.ClassDef):
                members = {m.name for m in node.body if isinstance(m, ast.FunctionDef)}
                self.assertEqual(members, {m for m in vars(binding) if m in members}, name)

    def test_lazy_names(self):
        tree = ast.parse(inspect.getsource(torch.npu))
        told: dict[str, str] = {}
        for node in tree.body:
            if isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING":
                for line in node.body:
                    self.assertIsInstance(line, ast.ImportFrom)
                    told |= {alias.name: line.module or "" for alias in line.names}
        lazy = {name: home for name, home in torch.npu._LAZY_NAMES.items() if home != "types"}  # typed ones are made
        self.assertEqual(told, {**lazy, **dict.fromkeys(torch.npu._LAZY_MODULES, "")})


if __name__ == "__main__":
    unittest.main()
