"""The overlay: which files of this repository go into the wheel, and where.

The result maps a path in site-packages to a file on disk or to bytes; the rest is upstream's, unchanged.
"""

import importlib.util
import json
import marshal
from pathlib import Path

from tools.codegen.npu_told import documentation
from tools.fork import grafts
from tools.setup_helpers.env import ROOT, BuildError, Switches

Content = Path | bytes

# (folder here, folder in the wheel, patterns, folders below it to leave out)
_Rule = tuple[str, str, tuple[str, ...], tuple[str, ...]]
_RULES: list[_Rule] = [
    ("torch", "torch", ("*.py", "*.pyi", "*.json", "*.yaml"), ("torch/csrc",)),
    ("third_party/torch_npu", "torch_npu", ("*.py", "*.pyi"), ()),
    ("third_party/apex", "apex", ("*.py", "*.pyi"), ()),
    ("c10/npu", "torch/include/c10/npu", ("*.h",), ()),
    ("aten/src/ATen", "torch/include/ATen", ("*.h",), ()),
    ("torch/csrc", "torch/include/torch/csrc", ("*.h",), ()),
    ("third_party/acl/inc", "torch/include", ("*.h",), ()),
    ("third_party/hccl/inc", "torch/include", ("*.h",), ()),
    # What a library of custom operators for the simulator includes.
    (
        "simulator",
        "torch/include/simulator",
        ("custom_op.h", "exec/definition/op.h", "core/error.h", "core/format.h"),
        (),
    ),
    ("tools/ms_fmk_transplt", "torch/tools/ms_fmk_transplt", ("ms_fmk_transplt.py", "transplant/*"), ()),
    ("aten/src/ATen/native/npu", "torchgen/packaged/ATen/native/npu", ("*.yaml",), ()),
]
# Only where the switch is on.
_SWITCHED: list[tuple[str, _Rule]] = [
    ("BUILD_TEST", ("test/test_npu", "torch/test/test_npu", ("*.py", "*.json", "*.yaml"), ()))
]
# The operator dump is Python alone: a build without NPU (for GPU hosts) has it, too. The comparer lies where the guides
# look for it, tools/operator_cmp/compare.
_DUMP_RULES: list[_Rule] = [
    ("torch/utils/dumper", "torch/utils/dumper", ("*.py",), ()),
    ("tools/msaccucmp", "torch/tools/operator_cmp/compare", ("*.py",), ()),
]
_LEFT_OUT = {"USE_DUMP": "torch/utils/dumper"}
# Top-level packages of the wheel besides upstream's, and the distribution that would bring the same one.
EXTRA_PACKAGES = {"torch_npu": "third_party/torch_npu", "apex": "third_party/apex"}


def extra_packages(root: Path = ROOT) -> list[str]:
    """The top-level packages that this tree adds to upstream's."""
    return [name for name, folder in EXTRA_PACKAGES.items() if (root / folder / "__init__.py").is_file()]


def compiled(source: Path) -> bytes:
    """The .pyc file of a script, which Python runs like the script; unchecked, so equal sources give equal bytes."""
    text = source.read_bytes()
    code = compile(text, source.name, "exec", dont_inherit=True)
    flags = (0b01).to_bytes(4, "little")  # hash-based, not checked
    return importlib.util.MAGIC_NUMBER + flags + importlib.util.source_hash(text) + marshal.dumps(code)


def declared_operators(root: Path = ROOT) -> bytes:
    """What Python is told of the operators that are declared in the operator table, as a JSON file."""
    import yaml

    entries: list[dict] = []
    for path in sorted((root / "aten/src/ATen/native/npu").glob("*/npu_native_functions.yaml")):
        entries += (yaml.safe_load(path.read_text(encoding="utf-8")) or {}).get("custom") or []
    return (json.dumps(documentation(entries), indent=1) + "\n").encode()


def collect(switches: Switches, base: Path, libraries: Path | None, root: Path = ROOT) -> dict[str, Content]:
    """All files of the wheel that differ from the base tree, path in site-packages to content.

    Raises BuildError when a file here would replace an upstream file whole: such a change is a graft.
    """
    files: dict[str, Content] = {}
    rules: list[_Rule] = list(_DUMP_RULES) if switches["USE_DUMP"] else []
    if rules and (script := root / "tools/msaccucmp/msaccucmp.py").is_file():
        files["torch/tools/operator_cmp/compare/msaccucmp.pyc"] = compiled(script)
    if switches["USE_NPU"]:
        rules += _RULES + [rule for switch, rule in _SWITCHED if switches[switch]]
    off = tuple(folder for switch, folder in _LEFT_OUT.items() if not switches[switch])
    for folder, place, patterns, left_out in rules:
        for pattern in patterns:
            for path in (root / folder).rglob(pattern):
                name = path.relative_to(root).as_posix()
                if "__pycache__" in path.parts or any(name.startswith(f"{other}/") for other in left_out + off):
                    continue
                files[f"{place}/{path.relative_to(root / folder).as_posix()}"] = path
    if switches["USE_NPU"]:
        files["torch/npu/_declared_ops.json"] = declared_operators(root)
    if switches["USE_NPU"] and libraries is not None:
        for path in libraries.rglob("*.so"):
            files[path.relative_to(libraries).as_posix()] = path
    for name, content in files.items():
        if (base / name).exists():
            raise BuildError(f"{content!s} would replace upstream's {name}: make it a graft (tools/fork/grafts)")
    files.update(grafts.grafted_files(base, switches))
    return dict(sorted(files.items()))
