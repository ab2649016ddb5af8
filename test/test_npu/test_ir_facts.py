"""The IR operators that the kernels issue are CANN's: names, operands and attributes as third_party/acl/ir_facts.yaml
has them. The simulated device refuses what its operators do not declare: its declarations bound what kernels send."""

import re
import unittest

import acl_library as acl
import yaml

FACTS = acl.ACL / "ir_facts.yaml"
KERNELS = acl.ROOT / "aten" / "src" / "ATen" / "native" / "npu"
KINDS = {"int", "float", "bool", "str", "type", "ints", "floats", "bools"}
SIMULATOR_KINDS = {"dtype": "type"}


def load():
    with FACTS.open() as file:
        return yaml.safe_load(file)


def registered():
    """type -> (least inputs, most, least outputs, most, {attribute: kind}, required attributes); None: any number."""
    operators = {}
    for line in acl.Library().aclsimListOps().decode().splitlines():
        name, *numbers, attrs, required = line.split("\t")
        counts = [None if n == "-1" else int(n) for n in numbers]
        kinds = dict(a.split(":") for a in attrs.split())
        operators[name] = (*counts, {k: SIMULATOR_KINDS.get(v, v) for k, v in kinds.items()}, set(required.split()))
    return operators


class Prototype:
    """One entry of `facts`, taken apart."""

    def __init__(self, entry):
        self.inputs, self.outputs = str(entry.get("in", "")).split(), str(entry.get("out", "")).split()
        self.attrs, self.required = {}, set()
        for item in str(entry.get("attrs", "")).split():
            name, _, kind = item.partition(":")
            kind = kind.partition("=")[0]
            if kind.endswith("!"):
                self.required.add(name)
            self.attrs[name] = kind.rstrip("!")

    @staticmethod
    def bounds(operands):
        least = sum(o[-1] not in "?*" for o in operands)
        return least, None if any(o.endswith("*") for o in operands) else len(operands)

    def differences(self, operator):
        """What of a registered operator CANN's has not."""
        *counts, attrs, required = operator
        for what, operands, least, most in (
            ("inputs", self.inputs, *counts[:2]),
            ("outputs", self.outputs, *counts[2:]),
        ):
            has_least, has_most = self.bounds(operands)
            if has_most is not None and (most is None or most > has_most):
                yield f"takes {most} {what}, CANN's has {has_most}: {' '.join(operands)}"
            if least < has_least and has_most is not None:
                yield f"may come with {least} {what}, CANN's has {has_least}: {' '.join(operands)}"
        for name, kind in attrs.items():
            if self.attrs.get(name) != kind:
                yield f"has attribute {name}:{kind}, CANN's has {self.attrs.get(name, 'none of that name')}"
        for name in sorted(self.required - required):
            yield f"does not need attribute {name}, which CANN's requires"


class TestIrFacts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        data = load()
        cls.facts = {name: Prototype(entry) for name, entry in data["facts"].items()}
        cls.own = [name for group in data["simulator_only"] for name in group["types"]]
        cls.groups, cls.deviations, cls.graph = data["simulator_only"], data["deviations"], data["graph"]
        cls.operators = registered()

    def test_facts_are_well_formed(self):
        for name, fact in self.facts.items():
            self.assertLessEqual(set(fact.attrs.values()), KINDS, name)
            self.assertEqual(len(set(fact.inputs)), len(fact.inputs), name)
        self.assertEqual(len(set(self.own)), len(self.own))
        self.assertFalse(set(self.own) & set(self.facts), "both CANN's and the simulator's own")
        self.assertLessEqual(set(self.deviations), set(self.facts))

    def test_every_operator_is_accounted_for(self):
        known = set(self.facts) | set(self.own)
        new = sorted(set(self.operators) - known)
        self.assertFalse(new, f"not in {FACTS.name}: look up CANN's prototype, or list them under simulator_only")
        self.assertFalse(
            sorted(known - set(self.operators)), f"in {FACTS.name}, but the simulated device has none such"
        )

    def test_operators_are_as_cann_has_them(self):
        for name, fact in self.facts.items():
            if name not in self.deviations:
                with self.subTest(name):
                    self.assertEqual(list(fact.differences(self.operators[name])), [])

    def test_a_difference_is_found(self):
        fact = Prototype({"in": "x w? l", "out": "y", "attrs": "axis:int! eps:float=0.1 keep:bool=false"})
        good = (2, 3, 1, 1, {"axis": "int", "eps": "float"}, {"axis"})
        self.assertEqual(list(fact.differences(good)), [])
        for i, bad in (
            (0, 1),
            (1, 4),
            (1, None),
            (2, 0),
            (3, 2),
            (4, {"axis": "float"}),
            (4, {"dim": "int"}),
            (5, set()),
        ):
            changed = [*good[:i], bad, *good[i + 1 :]]
            self.assertEqual(len(list(fact.differences(changed))), 1, changed)

    def test_kernels_issue_what_is_listed(self):
        literal = re.compile(r'Name\(\s*"(\w+)"\s*\)|Name\([^()"]*\? "(\w+)" : "(\w+)"\)')
        listed = re.compile(r"\b(?:ir|type): ([A-Z]\w*)")
        issued = set()
        for path in [*KERNELS.rglob("*.cpp"), *KERNELS.rglob("*.yaml")]:
            text = path.read_text()
            if path.suffix == ".yaml":
                text = re.sub(r"#.*", "", text)
            for match in (listed if path.suffix == ".yaml" else literal).finditer(text):
                issued |= {name for name in match.groups() if name}
        self.assertGreater(len(issued), 350)
        self.assertFalse(sorted(issued - set(self.facts) - set(self.own)))

    def test_graph_mode_knows_types_that_there_are(self):
        listed = [name for names in self.graph.values() for name in names]
        self.assertEqual(len(listed), len(set(listed)), "a type is of one kind")
        self.assertFalse([name for name in listed if name not in self.facts and name not in self.own])

    def test_the_manual_lists_the_simulators_own(self):
        manual = (acl.ROOT / "docs" / "simulator.md").read_text().splitlines()
        for group in self.groups:
            line = f"| {group['reason']} | {', '.join(group['types'])} |"
            self.assertTrue(line in manual, f"docs/simulator.md lacks the line {line}")


if __name__ == "__main__":
    unittest.main()
