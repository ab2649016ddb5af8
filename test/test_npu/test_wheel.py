"""The distribution: version, records, conflicts with other distributions, switches, and how the wheel is written."""

import csv
import importlib.metadata
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

import torch  # noqa: E402
from tools.fork import base, metadata, overlay, wheel  # noqa: E402
from tools.setup_helpers.env import PYTHON, BuildError, Switches  # noqa: E402
from tools.setup_helpers.generate import sync  # noqa: E402
from torch import _npu_autoload  # noqa: E402

SITE = Path(torch.__file__).parents[1]


def python(code, cwd=None, **environment):
    """Runs Python source in a fresh interpreter; returns its stdout, stderr and status."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        timeout=120,
    )
    return done.stdout, done.stderr, done.returncode


def build_sh(*arguments, **environment):
    return subprocess.run(
        ["bash", str(ROOT / "build.sh"), *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
        timeout=60,
    )


class TestInstallation(unittest.TestCase):
    def test_version(self):
        self.assertEqual(torch.__version__, "2.13.0+ascend")
        self.assertEqual(importlib.metadata.version("torch"), "2.13.0+ascend")

    def test_the_plugins_name_is_a_distribution(self):
        self.assertEqual(importlib.metadata.version("torch_npu"), "2.13.0+ascend")
        self.assertEqual(importlib.metadata.requires("torch-npu"), ["torch==2.13.0+ascend"])
        # Its own record names itself alone, so that removing it leaves the package, and torch's names it, too.
        own = {str(path) for path in importlib.metadata.files("torch_npu")}
        info = f"torch_npu-{torch.__version__}.dist-info"
        self.assertTrue(own and all(name.startswith(f"{info}/") for name in own), own)
        self.assertLessEqual(own, {str(path) for path in importlib.metadata.files("torch")})
        _npu_autoload.check_conflicts([str(SITE)])

    def test_where_it_lies_in_the_wheel(self):
        names = metadata.alias_metadata()
        placed = {metadata.place_in_wheel(name) for name in names}
        self.assertTrue(all(name.startswith("torch-2.13.0+ascend.data/platlib/torch_npu-") for name in placed), placed)
        self.assertEqual(metadata.place_in_wheel("torch_npu/__init__.py"), "torch_npu/__init__.py")

    def test_import_from_the_source_root(self):
        out, err, status = python("import torch; print(torch.__file__)", cwd=ROOT)
        self.assertEqual((out.strip(), err, status), (str(Path(torch.__file__)), "", 0))

    def test_pip_check_names_nothing_of_ours(self):
        done = subprocess.run([sys.executable, "-m", "pip", "check"], capture_output=True, text=True, timeout=120)
        # Libraries that were installed with --no-deps may miss what belongs to them; not our concern.
        ours = {"torch", "torch-npu", "torch_npu", "torchgen", "functorch", "apex"}
        complaints = [line for line in done.stdout.splitlines() if ours & set(re.findall(r"[\w-]+", line))]
        self.assertTrue(done.stdout, done.stderr)
        self.assertEqual(complaints, [])

    def test_record_lists_every_file(self):
        # What RECORD lists is what an uninstallation removes.
        info = next(SITE.glob("torch-*.dist-info"))
        with open(info / "RECORD", newline="") as stream:
            recorded = {row[0] for row in csv.reader(stream)}
        missing = [name for name in recorded if not (SITE / name).exists() and not name.endswith(".pyc")]
        self.assertEqual(missing, [])
        packages = ["torch", "torchgen", "functorch", info.name, *overlay.extra_packages()]
        there = {
            p.relative_to(SITE).as_posix() for package in packages for p in (SITE / package).rglob("*") if p.is_file()
        }
        unlisted = {name for name in there - recorded if not name.endswith(".pyc")}
        self.assertEqual(unlisted, set())

    def test_optional_tools_are_an_extra(self):
        metadata = importlib.metadata.metadata("torch")
        self.assertIn("npu-tools", metadata.get_all("Provides-Extra"))
        extra = [line for line in metadata.get_all("Requires-Dist") if "npu-tools" in line]
        self.assertEqual(
            {line.split(";")[0].strip() for line in extra}, {"h5py", "libcst", "openpyxl", "rich", "matplotlib"}
        )

    def test_config_lists_every_switch(self):
        shown = torch.__config__.show()
        for name in (
            *Switches.read({}).own,
            "USE_CUDA",
            "USE_NCCL",
            "USE_MKLDNN",
            "USE_NNPACK",
            "USE_XNNPACK",
            "BUILD_BREAKPAD",
        ):
            self.assertRegex(shown.split("Ascend build:")[1], rf"\b{name}=[01]")

    def test_autoload_off(self):
        out, err, status = python("import torch; torch.device('npu')", TORCH_DEVICE_BACKEND_AUTOLOAD="0")
        self.assertEqual(status, 1)
        self.assertIn("Expected one of cpu, cuda", err)


class TestConflicts(unittest.TestCase):
    def folder(self, *names):
        root = self.enterContext(tempfile.TemporaryDirectory())
        site = Path(root, "site-packages")
        for name in names:
            (site / name).mkdir(parents=True)
        return str(site)

    def test_official_plugin_is_named(self):
        site = self.folder("torch_npu-2.1.0.dist-info")
        with self.assertRaisesRegex(ImportError, r"torch_npu-2.1.0 in .*site-packages.*pip uninstall torch_npu"):
            _npu_autoload.check_conflicts([site])

    def test_other_apex_is_no_conflict(self):
        """It wins where it is installed, see test_apex/test_packages.py."""
        self.assertIn("apex", overlay.extra_packages())
        _npu_autoload.check_conflicts([self.folder("apex-0.1.egg-info")])

    def test_import_torch_says_so(self):
        site = self.folder("torch_npu-2.1.0.dist-info")
        _, err, status = python("import torch", PYTHONPATH=site)
        self.assertEqual(status, 1)
        self.assertIn("pip uninstall torch_npu", err)

    def test_alias_is_the_same_modules(self):
        out, err, status = python("""
import torch, torch_npu, torch_npu.npu.streams
from torch_npu.npu import memory
print(torch_npu.npu is torch.npu, memory is torch.npu.memory, torch_npu.npu.streams is torch.npu.streams)
print(torch.npu.__spec__.name, torch_npu.current_device is torch.npu.current_device, torch_npu.__version__)
try:
    torch_npu.no_such_name
except AttributeError as error:
    print(error)
""")
        self.assertEqual((err, status), ("", 0))
        self.assertEqual(out.splitlines()[0], "True True True")
        self.assertEqual(out.splitlines()[1], "torch.npu True 2.13.0+ascend")
        self.assertIn("no_such_name", out.splitlines()[2])


class TestSwitches(unittest.TestCase):
    def test_defaults(self):
        switches = Switches.read({})
        self.assertEqual(switches.text().split(", ")[:3], ["DEBUG=0", "USE_NPU=1", "USE_HCCL=1"])
        self.assertEqual(switches.notices, ())

    def test_base_switches_that_disagree_get_one_line_each(self):
        switches = Switches.read({"USE_MKLDNN": "0", "USE_CUDA": "0", "USE_NNPACK": "OFF", "USE_NCCL": "1"})
        self.assertEqual(len(switches.notices), 3)
        self.assertTrue(any("USE_MKLDNN=0 has no effect" in line for line in switches.notices))

    def test_malformed_values(self):
        for name, value in (("DEBUG", "maybe"), ("USE_CUDA", "2"), ("MAX_JOBS", "many"), ("MAX_JOBS", "0")):
            with self.assertRaisesRegex(BuildError, f"{name}={value}"):
                Switches.read({name: value})

    def test_jobs(self):
        self.assertEqual(Switches.read({"MAX_JOBS": "3"}).max_jobs, 3)


class TestBuildScript(unittest.TestCase):
    def test_help(self):
        done = build_sh("--help")
        self.assertEqual(done.returncode, 0)
        for word in ("wheel", "develop", "train", "test", "clean", "--python", "--base-wheel", "MAX_JOBS"):
            self.assertIn(word, done.stdout)

    def test_refusals(self):
        for arguments, message in (
            (["--python=3.8"], "--python=3.8.*3.11"),
            (["--base-wheel", "/no/such.whl"], "no such file"),
            (["wheel", "--fast"], "unknown argument '--fast'"),
        ):
            done = build_sh(*arguments)
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, message)

    def test_names_that_the_guides_use(self):
        done = subprocess.run(
            ["bash", "ci/build.sh", "--python=3.9"], capture_output=True, text=True, cwd=ROOT, timeout=60
        )
        self.assertEqual((done.returncode, "use --python=3.11" in done.stderr), (1, True))
        makefile = (ROOT / "Makefile").read_text()
        for target in ("wheel", "develop", "test", "train", "clean"):
            self.assertRegex(makefile, rf"(?m)^[a-z -]*\b{target}\b.*:")
        self.assertTrue(os.access(ROOT / ".ci/run", os.X_OK))

    def test_missing_python_is_named(self):
        with tempfile.TemporaryDirectory() as folder:
            for tool in ("bash", "dirname", "env"):
                os.symlink(f"/usr/bin/{tool}", Path(folder, tool))
            done = build_sh("wheel", PATH=folder, VENV_DIR=f"{folder}/venv")
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "python3.11 is missing: apt install")


class TestBaseWheel(unittest.TestCase):
    def refuse(self, message, **files):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "torch.whl")
            with zipfile.ZipFile(path, "w") as out:
                for name, text in files.items():
                    out.writestr(name.replace("__", "/"), text)
            with self.assertRaisesRegex(BuildError, message):
                base.check(path)

    def test_wrong_wheels_are_refused(self):
        cpu = "cuda: Optional[str] = None\n"
        self.refuse("is no torch wheel", **{"numpy/version.py": ""})
        self.refuse("holds torch 2.1.0", **{"torch/version.py": f"__version__ = '2.1.0'\n{cpu}"})
        self.refuse("of this fork", **{"torch/version.py": f"__version__ = '2.13.0+ascend'\n{cpu}"})
        self.refuse("CUDA build", **{"torch/version.py": "__version__ = '2.13.0'\ncuda: Optional[str] = '13.0'\n"})
        ours = rf"is not for CPython {PYTHON[0]}.{PYTHON[1]} .*--base-wheel FILE"
        self.refuse(ours, **{"torch/version.py": f"__version__ = '2.13.0+cpu'\n{cpu}"})


class TestWriting(unittest.TestCase):
    def test_raw_copies_keep_the_compressed_bytes(self):
        data = os.urandom(1000) * 50
        with tempfile.TemporaryDirectory() as folder:
            old, new = Path(folder, "old.zip"), Path(folder, "new.zip")
            with zipfile.ZipFile(old, "w", zipfile.ZIP_DEFLATED) as out:
                out.writestr("a/x.bin", data)
                with out.open("streamed.txt", "w") as stream:
                    stream.write(b"text")
            with zipfile.ZipFile(old) as source, wheel.RawCopyZip(new, "w") as out:
                for entry in source.infolist():
                    out.copy_entry(source, entry, entry.filename.replace("a/", "b/"))
                out.add("b/ours.py", b"pass\n")
            with zipfile.ZipFile(old) as source, zipfile.ZipFile(new) as copied:
                self.assertIsNone(copied.testzip())
                self.assertEqual(copied.namelist(), ["b/x.bin", "streamed.txt", "b/ours.py"])
                self.assertEqual(copied.read("b/x.bin"), data)
                self.assertEqual(copied.getinfo("b/x.bin").compress_size, source.getinfo("a/x.bin").compress_size)

    def test_a_copy_of_an_upstream_file_is_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for tree in ("here", "base"):
                Path(folder, tree, "torch").mkdir(parents=True)
                Path(folder, tree, "torch", "serialization.py").write_text("")
            with self.assertRaisesRegex(BuildError, "would replace upstream's torch/serialization.py.*graft"):
                overlay.collect(Switches.read({}), Path(folder, "base"), None, Path(folder, "here"))

    def test_generated_files_are_touched_only_when_they_change(self):
        with tempfile.TemporaryDirectory() as folder:
            new, place = Path(folder, "new"), Path(folder, "place")
            new.mkdir()
            (new / "same.cpp").write_text("same")
            (new / "other.cpp").write_text("one")
            self.assertEqual(sync(new, place), ["other.cpp", "same.cpp"])
            (new / "other.cpp").write_text("two")
            (place / "gone.cpp").write_text("old")
            self.assertEqual(sync(new, place), ["gone.cpp", "other.cpp"])
            self.assertEqual(sorted(p.name for p in place.iterdir()), ["other.cpp", "same.cpp"])


class TestCommandLines(unittest.TestCase):
    def test_setup_py_takes_the_guides_line(self):
        # The switches of the guides' line; stopped at the list of commands, so that nothing is built.
        line = (
            "DEBUG=0 USE_DISTRIBUTED=1 USE_HCCL=1 USE_MKLDNN=0 USE_CUDA=0 "
            "USE_NPU=1 BUILD_TEST=0 USE_NNPACK=0 USE_DUMP=1"
        )
        given = dict(pair.split("=") for pair in line.split())
        done = subprocess.run(
            [sys.executable, "setup.py", "--help-commands"],
            capture_output=True,
            text=True,
            cwd=ROOT,
            env={**os.environ, **given},
            timeout=60,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        for command in ("build", "bdist_wheel", "develop"):
            self.assertRegex(done.stdout, rf"\b{command}\b")
        self.assertEqual(
            [notice.split()[0] for notice in Switches.read(given).notices], ["USE_MKLDNN=0", "USE_NNPACK=0"]
        )


if __name__ == "__main__":
    unittest.main()
