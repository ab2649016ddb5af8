"""Grafts: how a change of an upstream file is found, refused and applied; this installation carries them all."""

import sys
import tempfile
import textwrap
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from tools.fork import grafts  # noqa: E402
from tools.setup_helpers.env import BuildError, Switches  # noqa: E402

UPSTREAM = "import os\n\n\ndef f():\n    return 1\n"


def graft(mode="replace", anchor="    return 1\n", text="    return 2\n", source="demo.toml graft 1", **more):
    return grafts.Graft(source=source, file="torch/x.py", mode=mode, anchor=anchor, text=text, reason="demo", **more)


class TestApply(unittest.TestCase):
    def test_three_modes(self):
        self.assertIn("def f():\n    return 2\n", grafts.apply(UPSTREAM, [graft()]))
        after = grafts.apply(UPSTREAM, [graft("insert-after", "import os\n", "import sys\n")])
        self.assertTrue(after.startswith("import os\nimport sys\n"))
        before = grafts.apply(UPSTREAM, [graft("insert-before", "import os\n", "import abc\n")])
        self.assertTrue(before.startswith("import abc\nimport os\n"))

    def test_order_does_not_matter(self):
        two = [graft(), graft("insert-after", "import os\n", "import sys  # return 1\n")]
        self.assertEqual(grafts.apply(UPSTREAM, two), grafts.apply(UPSTREAM, two[::-1]))

    def test_anchor_must_be_found_exactly_once(self):
        for anchor, count in (("nowhere", 0), ("\n", 5)):
            with self.assertRaisesRegex(BuildError, rf"demo.toml graft 1.*found {count} times in torch/x.py"):
                grafts.apply(UPSTREAM, [graft(anchor=anchor)])

    def test_overlap_is_refused(self):
        with self.assertRaisesRegex(BuildError, "first.*second.*overlap in torch/x.py"):
            grafts.apply(UPSTREAM, [graft(source="first"), graft(anchor="return 1", source="second")])


class TestRead(unittest.TestCase):
    def read(self, text):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "demo.toml").write_text(textwrap.dedent(text))
            return grafts.read(Path(folder))

    def test_table(self):
        (one,) = self.read("""
            [[graft]]
            file = "torch/x.py"
            mode = "replace"
            reason = "demo"
            anchor = '''
            a'''
            text = 'b'
        """)
        self.assertEqual((one.source, one.file, one.when), ("demo.toml graft 1", "torch/x.py", "USE_NPU"))

    def test_malformed_is_named(self):
        good = 'file = "torch/x.py"\nreason = "r"\nanchor = "a"\ntext = "b"\n'
        for line, message in (
            ('mode = "append"', "mode 'append'"),
            ('mode = "replace"\nwhen = "USE_MAGIC"', "USE_MAGIC"),
            ('mode = "replace"\ncolour = "red"', "colour"),
            ("", "mode"),
        ):
            with self.assertRaisesRegex(BuildError, f"demo.toml graft 1.*{message}"):
                self.read(f"[[graft]]\n{good}{line}\n")

    def test_unknown_file_fails_the_build(self):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "demo.toml").write_text(
                '[[graft]]\nfile = "torch/nowhere.py"\nmode = "replace"\nreason = "r"\nanchor = "a"\ntext = "b"\n'
            )
            with self.assertRaisesRegex(BuildError, "demo.toml graft 1.*no file torch/nowhere.py"):
                grafts.grafted_files(Path(folder), Switches.read({}), Path(folder))


class TestInstalled(unittest.TestCase):
    def test_every_graft_of_this_build_is_in_place(self):
        own = dict(pair.split("=") for pair in torch.version.ascend_switches.split(", "))
        switches = Switches.read({name: own[name] for name in Switches.read({}).own})
        facts = {"@VERSION@": torch.__version__, "@SWITCHES@": torch.version.ascend_switches}
        site = Path(torch.__file__).parents[1]
        for one in grafts.read():
            if not one.applies(switches):
                continue
            with self.subTest(graft=one.source, file=one.file):
                text = one.text.replace("@BUILD_DEBUG@", str(torch.version.debug))
                for token, fact in facts.items():
                    text = text.replace(token, fact)
                self.assertIn(text, (site / one.file).read_text())

    def test_readme_has_them_all(self):
        readme = (ROOT / "README.md").read_text()
        self.assertEqual(readme, grafts.with_table(readme), "renew it: python -m tools.fork.grafts --write")
        for one in grafts.read():
            self.assertIn(f"| `{one.file}` |", readme)
            self.assertIn(one.reason, readme)


if __name__ == "__main__":
    unittest.main()
