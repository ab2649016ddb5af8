"""A device with those operators only that CANN documents (ASCEND_SIM_OPERATORS=cann), and a CANN that the simulator stands
behind: nothing of the simulator's own is sent to it, what has another composition takes that, the rest runs on the CPU."""

import ctypes
import json
import os
import subprocess
import sys
import unittest

import acl_library as acl
import yaml

FACTS = yaml.safe_load((acl.ACL / "ir_facts.yaml").read_text())
OWN = {name for group in FACTS["simulator_only"] for name in group["types"]}
MISSING = OWN | set(FACTS["deviations"])


def run(body, **environment):
    """The standard output of a Python program on a strict device."""
    done = subprocess.run(
        [sys.executable, "-c", body],
        env={**os.environ, "ASCEND_SIM_OPERATORS": "cann", **environment},
        cwd=os.path.dirname(os.path.abspath(__file__)),
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return done.stdout


LAUNCH = """
import ctypes, sys
import acl_library as acl
library = acl.Library()
library.check(library.aclInit(None))
library.check(library.aclrtSetDevice(0))
dims = (ctypes.c_int64 * 1)(4)
desc = library.aclCreateTensorDesc(acl.FLOAT, 1, ctypes.addressof(dims), acl.ND)
data = library.aclCreateDataBuffer(library.malloc(16), 16)
stream = library.stream()
descs, buffers = (ctypes.c_void_p * 1)(desc), (ctypes.c_void_p * 1)(data)
def launch(ir):
    attr = library.aclopCreateAttr()
    code = library.aclopCompileAndExecute(
        ir.encode(), 1, ctypes.addressof(descs), ctypes.addressof(buffers), 1, ctypes.addressof(descs),
        ctypes.addressof(buffers), attr, 0, 0, None, stream)
    return code, library.message()
"""


class TestStrictDevice(unittest.TestCase):
    def test_it_has_what_is_documented(self):
        listed = run("import acl_library as acl\nprint(acl.Library().aclsimListOps().decode())")
        types = {line.split("\t")[0] for line in listed.splitlines() if line}
        self.assertEqual(types, set(FACTS["facts"]) - MISSING)

    def test_others_are_refused_as_a_card_does(self):
        found = run(LAUNCH + "print(launch('Abs')[0])\nprint(*launch('Frac'), sep=chr(10))").splitlines()
        self.assertEqual(found[0], "0")
        self.assertEqual(found[1], str(acl.GE_FAILURE))
        self.assertIn("no operator of type 'Frac'", " ".join(found[2:]))

    def test_a_value_that_makes_no_sense(self):
        with self.assertRaisesRegex(AssertionError, "ASCEND_SIM_OPERATORS='some' is refused"):
            run("import torch; torch.ones(2, device='npu')", ASCEND_SIM_OPERATORS="some")


# Operators whose IR operator no card has, in the whole operator database: right, and never an error of a launch.
KIND = """
import json, sys, warnings
warnings.simplefilter("ignore")
import op_checks, torch, torch.npu
from op_checks import DEVICE, Meter, Unsuited, Wrong, place
from torch.testing._internal.common_methods_invocations import op_db
dtypes = (torch.float32, torch.float64, torch.int64, torch.complex64)
wanted = set(json.loads(sys.stdin.readline()))
wrong, foreign, count = [], {}, 0
"""


class TestCustomOperators(unittest.TestCase):
    pass


if __name__ == "__main__":
    unittest.main()
