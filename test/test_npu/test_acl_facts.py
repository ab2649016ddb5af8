"""The AscendCL interface is CANN's: the table, the headers and the loader agree with third_party/acl/acl_facts.yaml."""

import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import acl_library as acl
import yaml

FACTS = yaml.safe_load((acl.ACL / "acl_facts.yaml").read_text())
HOST = ("c10/npu", "aten/src/ATen/npu", "aten/src/ATen/native/npu", "torch/csrc/npu")
# Called without asking first, although a CANN may lack them: the feature is the function, so its error says all.
FEATURES = {"aclopSetCompileFlag", "aclSetCompileopt", "aclmdlInitDump", "aclmdlSetDump", "aclmdlFinalizeDump"}
# torch.npu.profile and torch.npu.mstx, in csrc/npu/Profiling.cpp.
FEATURES |= {f.name for f in acl.table() if f.name.startswith("aclprof")}
# What the device tells a profiler: asked for by the first of them, in csrc/npu/KinetoProfiler.cpp.
RECORDS = {f"aclsimProfile{name}" for name in ("Start", "Stop", "Read", "Text")}
RECORDS |= {"aclsimSetCorrelation", "aclsimGetCorrelation"}


def known_functions():
    """Function -> (signature, since, source), as the facts have them."""
    return {
        name: (signature, group["since"], group["from"])
        for group in FACTS["functions"]
        for name, signature in group["are"].items()
    }


def numbers():
    """Constant -> value."""
    values = {}
    for group in FACTS["enums"].values():
        value = -1
        for entry in group.split():
            name, _, given = entry.partition("=")
            value = int(given, 0) if given else value + 1
            values[name] = value
    return values


def spelled(text):
    return re.sub(r"\s*\*", "*", " ".join(text.split()))


def signature_of(function):
    types = [spelled(a.type) + a.suffix for a in function.args] + (["..."] if function.variadic else [])
    return f"{spelled(function.ret)} ({', '.join(types)})"


class TestFacts(unittest.TestCase):
    def test_sources_are_named(self):
        for name, (_, _, source) in known_functions().items():
            self.assertIn(source, FACTS["sources"], name)
        for rule in FACTS["rules"]:
            self.assertIn(rule["from"], FACTS["sources"], rule)
            self.assertLessEqual(set(rule["of"]), set(known_functions()), rule)
            self.assertTrue(rule["rule"] and rule["here"], rule)

    def test_table_has_the_signatures_and_releases(self):
        known = known_functions()
        of_cann = {f.name: f for f in acl.table() if f.release()}
        self.assertEqual(set(of_cann), set(known))
        for name, function in of_cann.items():
            signature, since, _ = known[name]
            self.assertEqual((signature_of(function), function.since), (signature, since), name)

    def test_what_cann_lacks_is_listed(self):
        lacking = {f.name for f in acl.table() if f.on_cann and not f.release()}
        self.assertEqual(lacking, {"aclrtQueryStream", "aclopRegister"})


class TestHeaders(unittest.TestCase):
    def test_no_other_constants(self):
        declared = set()
        for path in (acl.ACL / "inc" / "acl").glob("*.h"):
            text = re.sub(r"//.*", "", path.read_text())
            declared |= set(re.findall(r"\bACL_\w+(?=\s*(?:=|,|}|\n\s*}))", text))
            declared |= set(re.findall(r"#define (ACL_\w+) ", text))
        versions = {"ACL_MAJOR_VERSION", "ACL_MINOR_VERSION", "ACL_PATCH_VERSION"}
        own = {name for name in declared if name.startswith("ACL_SIM_")}  # no card has these
        self.assertEqual(declared - versions - own, set(numbers()))

    def test_numbers_and_layouts(self):
        compiler = shutil.which("g++") or shutil.which("c++")
        if compiler is None:
            self.skipTest("no C++ compiler")
        lines = ["#include <acl/acl.h>", "#include <cstddef>"]
        for name, value in numbers().items():
            number = f"{value}ULL" if value > 0x7FFFFFFF else str(value)
            lines.append(f'static_assert((unsigned long long)({name}) == (unsigned long long)({number}), "{name}");')
        for struct, members in FACTS["structs"].items():
            lines.append(f'static_assert(sizeof({struct}) == {members["size"]}, "{struct}");')
            for member, offset in members.items():
                if member != "size":
                    lines.append(f'static_assert(offsetof({struct}, {member}) == {offset}, "{struct}.{member}");')
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "facts.cpp"
            source.write_text("\n".join(lines) + "\n")
            command = [compiler, "-std=c++17", "-fsyntax-only", f"-I{acl.ACL / 'inc'}", str(source)]
            result = subprocess.run(command, capture_output=True, text=True, check=False)
        self.assertEqual(result.returncode, 0, result.stderr)


class TestHost(unittest.TestCase):
    """What the host calls, read from its sources."""

    def setUp(self):
        self.text = ""
        for folder in HOST:
            for path in [*(acl.ROOT / folder).rglob("*.cpp"), *(acl.ROOT / folder).rglob("*.h")]:
                self.text += re.sub(r"//.*", "", path.read_text())
        self.called = set(re.findall(r"\bacl::(acl\w+)\(", self.text))
        self.assertGreater(len(self.called), 40)

    def test_every_call_is_needed_asked_for_or_a_feature(self):
        asked = {name for name in self.called if f'"{name}"' in self.text}
        needed = {f.name for f in acl.table() if f.required}
        self.assertIn("aclsimProfileStart", asked)
        self.assertEqual(self.called - needed - asked - FEATURES - RECORDS, set())
        self.assertLessEqual(needed, self.called, "the host does not need what it does not call")

    def test_nothing_is_needed_that_an_old_release_lacks(self):
        late = {f.name: f.since for f in acl.table() if f.required and f.since > 5.1}
        self.assertEqual(late, {})

    def test_no_library_is_linked(self):
        """CANN's and the simulator's are opened when a device is needed."""
        if shutil.which("readelf") is None:
            self.skipTest("no readelf")
        lib = Path(acl.library_path()).parents[1]
        for path in (lib / "libc10_npu.so", lib / "libtorch_npu.so", *(lib.parent / "npu").glob("_C.*.so")):
            text = subprocess.run(["readelf", "-d", str(path)], capture_output=True, text=True, check=True).stdout
            linked = re.findall(r"NEEDED.*\[(.+)\]", text)
            self.assertIn("libc10.so", linked, path)
            self.assertEqual([n for n in linked if re.match(r"lib(ascend|acl|msprof|hccl|runtime|ge_)", n)], [], path)

    def test_nothing_is_called_that_no_release_has(self):
        self.assertEqual(self.called & {f.name for f in acl.table() if f.on_cann and not f.release()}, set())


if __name__ == "__main__":
    unittest.main()
