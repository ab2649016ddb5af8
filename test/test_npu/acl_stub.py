"""CANN as its releases have it, without one: libraries under CANN's names that export a part of the interface and have
the simulator do the work, so that the host takes them for a card."""

import contextlib
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

import acl_library as acl


def compiler():
    return shutil.which("g++") or shutil.which("c++")


def of_cann(until=99.0):
    """The functions that the releases up to one have."""
    return [f for f in acl.table() if f.release() and f.since <= until]


def halves(functions):
    """Those of the runtime's library, and those of the operator compiler's."""
    compiling = [f for f in functions if f.library == "acl_op_compiler"]
    return [f for f in functions if f.library == "ascendcl"], compiling


def write(home: Path, functions, soname="libascendcl.so", bodies=None):
    """A library in home/lib64 that has these functions; `bodies` says what some do instead."""
    lines = ["#include <acl/acl.h>", "#include <dlfcn.h>", "#include <cstdlib>", "namespace {", "void* sim() {"]
    lines += ['  static void* handle = dlopen(getenv("STUB_TARGET"), RTLD_NOW | RTLD_LOCAL);', "  return handle;"]
    lines += ["}", "}  // namespace", 'extern "C" {']
    for f in functions:
        types = ", ".join(a.type + ("*" if a.suffix == "[]" else "") for a in f.args if a.suffix in ("", "[]"))
        if f.variadic or any(a.suffix not in ("", "[]") for a in f.args):
            continue
        lines += [f"{f.ret} {f.name}({f.parameters()}) {{", (bodies or {}).get(f.name, "")]
        lines += [f'  static auto* call = reinterpret_cast<{f.ret} (*)({types})>(dlsym(sim(), "{f.name}"));']
        lines += [f"  return call({f.names()});", "}"]
    source = home / f"{soname}.cpp"
    source.write_text("\n".join([*lines, '}  // extern "C"', ""]))
    path = home / "lib64" / soname
    flags = ["-std=c++17", "-shared", "-fPIC", f"-I{acl.ACL / 'inc'}"]
    subprocess.run([compiler(), *flags, "-o", str(path), str(source)], check=True)


def card(home: Path):
    """A whole CANN, as far as the table knows it, in home."""
    (home / "lib64").mkdir(parents=True, exist_ok=True)
    runtime, compiling = halves(of_cann())
    write(home, runtime)
    write(home, compiling, "libacl_op_compiler.so")


def environment(home: Path):
    """What a process needs to find it."""
    return {"ASCEND_HOME_PATH": str(home), "STUB_TARGET": acl.library_path()}


@contextlib.contextmanager
def behind_cann():
    """Variables with which a process takes the simulated device for a card."""
    if compiler() is None:
        raise unittest.SkipTest("no C++ compiler")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "stub")
        card(home)
        yield {"ASCEND_SIMULATOR": "off", **environment(home)}
