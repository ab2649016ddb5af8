"""Every host: what is not this machine's Python, processor or compiler. docs/hosts.md says what was run where."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path
from unittest import mock

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT))

from tools.cross import elf  # noqa: E402
from tools.fork import base, metadata, wheel  # noqa: E402
from tools.setup_helpers import env  # noqa: E402

PYTHONS = [(3, minor) for minor in range(env.OLDEST_PYTHON[1], env.NEWEST_PYTHON[1] + 1)]
CPU, CUDA = "__version__ = '2.13.0+cpu'\ncuda: Optional[str] = None\n", "cuda: Optional[str] = '13.0'\n"


def sources(*patterns):
    """The repository's files, as git knows them."""
    listed = subprocess.run(["git", "ls-files", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in listed.stdout.splitlines() if (ROOT / name).is_file()]


def base_wheel(folder, text, python, machine):
    """A wheel of upstream's, as far as `base.check` looks."""
    path = Path(
        folder, f"torch-2.13.0+cpu-{env.python_tag(python)}-{env.python_tag(python)}-manylinux_2_28_{machine}.whl"
    )
    with zipfile.ZipFile(path, "w") as out:
        out.writestr("torch/version.py", text)
        out.writestr(f"torch/_C.cpython-{python[0]}{python[1]}-{machine}-linux-gnu.so", "")
    return path


class TestPythons(unittest.TestCase):
    def test_every_file_is_in_the_oldest_pythons_grammar(self):
        for path in sources("*.py"):
            with self.subTest(path.relative_to(ROOT)):
                ast.parse(path.read_bytes(), str(path), feature_version=env.OLDEST_PYTHON)

    def test_other_interpreters_compile_every_file(self):
        program = (
            "import sys\nfrom pathlib import Path\nfor f in sys.argv[1:]: compile(Path(f).read_bytes(), f, 'exec')"
        )
        names = [str(path) for path in sources("*.py")]
        for python in PYTHONS:
            interpreter = shutil.which(f"python{python[0]}.{python[1]}")
            if not interpreter or subprocess.run([interpreter, "-c", ""], capture_output=True, check=False).returncode:
                continue  # not there, or a manager's stand-in for one that is not there
            with self.subTest(python):
                done = subprocess.run(
                    [interpreter, "-W", "error::SyntaxWarning", "-c", program, *names],
                    capture_output=True,
                    text=True,
                    check=False,
                )
                self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_nothing_names_one_version(self):
        bound = re.compile(r"cp3\d\d\b|cpython-3\d|\bpy3\d\d\b")
        allowed = {"pyproject.toml", "README.md", "docs/hosts.md", "test/test_npu/test_hosts.py"}
        for path in sources("*.py", "*.sh", "*.txt", "*.cmake", "*.toml", "*.cpp", "*.h", "*.yaml", ".ci/*"):
            name = path.relative_to(ROOT).as_posix()
            if name not in allowed:
                with self.subTest(name):
                    self.assertIsNone(bound.search(path.read_text(encoding="utf-8")))

    def test_modules_that_came_after_the_oldest_are_asked_for(self):
        """What 3.11 added to the library is imported only behind a look at the version."""
        late = re.compile(
            r"^\s*(?:import tomllib|from (?:enum|typing) import .*\b(?:StrEnum|Self|Never|assert_never)\b)"
        )
        for path in sources("*.py"):
            lines = path.read_text(encoding="utf-8").splitlines()
            for number, line in enumerate(lines):
                if late.match(line):
                    with self.subTest(f"{path}:{number + 1}"):
                        self.assertIn("sys.version_info", lines[number - 1])

    def test_names_for_each_python(self):
        machine = env.machine()
        for python in PYTHONS:
            tag = f"cp3{python[1]}"
            self.assertEqual(env.wheel_tag(python), f"{tag}-{tag}-linux_{machine}")
            self.assertEqual(env.extension_suffix(python), f".cpython-3{python[1]}-{machine}-linux-gnu.so")
        self.assertEqual(env.PYTHON, sys.version_info[:2])
        self.assertIn(env.wheel_tag(), wheel.wheel_name())
        self.assertIn(f"Tag: {env.wheel_tag()}".encode(), metadata.alias_metadata()[f"{metadata.ALIAS_INFO}/WHEEL"])

    def test_base_wheels_of_other_pythons_are_not_taken(self):
        other = next(python for python in PYTHONS if python != env.PYTHON)
        machine = env.machine()
        with tempfile.TemporaryDirectory() as folder:
            theirs = base_wheel(folder, CPU, other, machine)
            self.assertIsNone(base.cached(Path(folder)))
            with self.assertRaisesRegex(env.BuildError, rf"is not for CPython .*{env.python_tag()}.*--python"):
                base.check(theirs)
            ours = base_wheel(folder, CPU, env.PYTHON, machine)
            self.assertEqual(base.cached(Path(folder)), ours)
            base.check(ours)

    def test_cuda_wheels_are_refused_by_name(self):
        with tempfile.TemporaryDirectory() as folder:
            path = base_wheel(folder, CPU.splitlines()[0] + "\n" + CUDA, env.PYTHON, env.machine())
            with self.assertRaisesRegex(
                env.BuildError, rf"{re.escape(path.name)} is a CUDA build; .*--base-wheel FILE"
            ):
                base.check(path)
            self.assertTrue(base.is_cuda(path))
            base.check(path, cuda=True)

    def test_a_cuda_wheel_is_refused_before_it_is_downloaded(self):
        name = "torch-2.13.0-cp312-cp312-manylinux_2_28_x86_64.whl"
        item = {"download_info": {"url": f"file:///somewhere/{name}"}, "metadata": {"requires_dist": ["nvidia-nccl"]}}
        report = json.dumps({"install": [item]})
        asked = subprocess.CompletedProcess([], 0, stdout=report)
        with (
            mock.patch.object(base.subprocess, "run", return_value=asked) as run,
            self.assertRaisesRegex(env.BuildError, rf"{name}, which pip would take, is a CUDA build"),
        ):
            base._download_unless_cuda("torch==2.13.0")
        self.assertIn("--dry-run", run.call_args.args[0])

    def test_build_sh_says_which_pythons(self):
        for version in ("3.9", "3.15", "2.7", "3"):
            done = subprocess.run(
                ["bash", "build.sh", f"--python={version}"], cwd=ROOT, capture_output=True, text=True, check=False
            )
            self.assertEqual(done.returncode, 1)
            self.assertRegex(done.stderr, rf"--python={re.escape(version)}: .* 3.10 to 3.14; use --python=3.11")

    def test_build_sh_keeps_pythons_apart(self):
        """An environment of another Python is named, not used."""
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "venv/bin").mkdir(parents=True)
            for path in ("bin/python3.12", "venv/bin/python"):
                Path(folder, path).parent.mkdir(exist_ok=True)
                Path(folder, path).write_text("#!/bin/sh\n")
                Path(folder, path).chmod(0o755)
            done = subprocess.run(
                ["bash", "build.sh", "--python=3.12"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "VENV_DIR": f"{folder}/venv", "BUILD_DIR": f"{folder}/build"},
            )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "holds another Python than 3.12: remove it, or say VENV_DIR")


class TestProcessors(unittest.TestCase):
    def test_names_for_another_machine(self):
        with mock.patch.dict(os.environ, TARGET_MACHINE="aarch64"):
            self.assertEqual(env.wheel_tag((3, 11)), "cp311-cp311-linux_aarch64")
            self.assertTrue(wheel.wheel_name().endswith("-linux_aarch64.whl"))
            with tempfile.TemporaryDirectory() as folder:
                path = base_wheel(folder, CPU, env.PYTHON, "aarch64")
                self.assertEqual(base.cached(Path(folder)), path)
                base.check(path)

    def test_a_wheel_for_another_machine_is_packed(self):
        """Upstream's wheel for aarch64 lists folders, too, which RECORD does not."""
        info = "torch-2.13.0+cpu.dist-info"
        texts = {
            "METADATA": "Metadata-Version: 2.1\nName: torch\nVersion: 2.13.0+cpu\n\ntext",
            "entry_points.txt": "[console_scripts]\n",
            "top_level.txt": "torch\n",
        }
        with tempfile.TemporaryDirectory() as folder, mock.patch.dict(os.environ, TARGET_MACHINE="aarch64"):
            path = base_wheel(folder, CPU, env.PYTHON, "aarch64")
            with zipfile.ZipFile(path, "a") as out:
                out.writestr("torch/", "")
                for name, text in texts.items():
                    out.writestr(f"{info}/{name}", text)
                rows = [name for name in out.namelist() if not name.endswith("/")]
                out.writestr(f"{info}/RECORD", "".join(f"{name},,\n" for name in [*rows, f"{info}/RECORD"]))
            with zipfile.ZipFile(path) as source:
                source.extractall(Path(folder, "base"))
            with (
                mock.patch.dict(os.environ, BASE_WHEEL=str(path)),
                mock.patch.object(wheel, "collect", return_value={"torch/lib/libc10_npu.so": b"ours"}),
            ):
                made = wheel.write(
                    env.Switches.read({"USE_NPU": "0"}), Path(folder, "base"), None, Path(folder, "dist")
                )
            with zipfile.ZipFile(made) as packed:
                names = packed.namelist()
                tag = packed.read(f"{metadata.DIST_INFO}/WHEEL").decode()
        self.assertTrue(made.name.endswith("-linux_aarch64.whl"))
        self.assertIn(f"Tag: {env.python_tag()}-{env.python_tag()}-linux_aarch64", tag)
        self.assertIn("torch/lib/libc10_npu.so", names)
        self.assertNotIn("torch/", names)

    def test_code_for_one_processor_has_another_way(self):
        """Intrinsics and instructions of x86 stand behind a condition."""
        x86 = re.compile(r"__builtin_ia32|(?<!\w)_mm\d*_|immintrin\.h|target_clones|__builtin_cpu_supports|target\(\"")
        for path in sources("*.cpp", "*.h"):
            depth = []
            for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
                if directive := re.match(r"\s*#\s*(if|ifdef|ifndef|elif|else|endif)\b(.*)", line):
                    word, condition = directive.groups()
                    if word.startswith("if"):
                        depth.append(condition)
                    elif word == "endif":
                        depth.pop()
                    else:
                        depth[-1] = condition
                elif x86.search(line) and not line.lstrip().startswith("//"):
                    with self.subTest(f"{path}:{number}"):
                        self.assertTrue(any("x86" in condition or "AVX" in condition for condition in depth))

    @unittest.skipUnless(shutil.which("readelf"), "binutils is not installed")
    def test_what_is_asked_of_libraries(self):
        library = next((Path(base.__file__).resolve().parents[2] / "build/release/lib").rglob("libc10_npu.so"), None)
        if library is None:
            self.skipTest("the libraries are not built here")
        self.assertIn("libc10.so", elf.needed(library))
        self.assertIn("libc10.so", elf.missing(library, [library.parent]))
        self.assertTrue(any("c10" in name for name in elf.unresolved(library, [library.parent])))

    def test_the_cross_build_explains_itself(self):
        done = subprocess.run(
            [sys.executable, "-m", "tools.cross.aarch64", "--help"],
            cwd=ROOT,
            capture_output=True,
            text=True,
            check=False,
        )
        self.assertEqual(done.returncode, 0, done.stderr)
        for word in ("--base-wheel", "--no-tests", "--gtest-filter", "CUDA"):
            self.assertIn(word, done.stdout)

    def test_missing_tools_are_named(self):
        with tempfile.TemporaryDirectory() as folder:
            done = subprocess.run(
                [sys.executable, "-m", "tools.cross.aarch64", "--no-tests"],
                cwd=ROOT,
                capture_output=True,
                text=True,
                check=False,
                env={**os.environ, "PATH": folder},
            )
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stderr, "aarch64-linux-gnu-g.. is missing: apt install g..-aarch64-linux-gnu qemu-user")


class TestDocker(unittest.TestCase):
    def test_what_is_copied_is_there(self):
        text = (ROOT / "docker/Dockerfile").read_text()
        self.assertEqual(len(re.findall("^FROM debian:.*-slim", text, re.MULTILINE)), 2)
        for name in re.findall(r"/src/([\w.-]+\.txt)", text):
            self.assertTrue((ROOT / name).is_file(), name)
        for name in re.findall(r"examples/[\w/]+\.sh", text):
            self.assertTrue((ROOT / name).is_file(), name)


if __name__ == "__main__":
    unittest.main()
