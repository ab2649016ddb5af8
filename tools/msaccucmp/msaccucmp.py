# The accuracy comparer under the name that the guides give it. It needs numpy and h5py, not torch.
"""python3 msaccucmp.py compare -m NPU.h5 -g GPU.h5 | convert -d DUMP -out DIR"""

import argparse
import contextlib
import os
import sys
import time

_HERE = os.path.dirname(os.path.abspath(__file__))
if _HERE not in sys.path:
    sys.path.insert(0, _HERE)

OK, DIFFERS, REFUSED, MISSING = 0, 1, 2, 3
_EPILOG = """exit status: 0 every operator is within tolerance (convert: every file was converted); 1 some are not;
2 wrong options or files; 3 a package is missing."""
_MAX_ROWS = 40


def _algorithms(text: str) -> tuple[str, ...]:
    import metrics

    if text.strip().lower() == "all":
        return metrics.ALGORITHMS
    chosen = []
    for item in (part.strip() for part in text.split(",")):
        if item.isdecimal() and int(item) < len(metrics.ALGORITHMS):
            chosen.append(metrics.ALGORITHMS[int(item)])
        elif item in metrics.ALGORITHMS:
            chosen.append(item)
        else:
            raise argparse.ArgumentTypeError(f"{item!r} is none of {', '.join(metrics.ALGORITHMS)}, 0 to 9, all")
    return tuple(dict.fromkeys(chosen))


def parser() -> argparse.ArgumentParser:
    """The command's options."""
    p = argparse.ArgumentParser(prog="msaccucmp.py", description=__doc__, epilog=_EPILOG)
    commands = p.add_subparsers(dest="command", required=True, metavar="compare|convert")
    c = commands.add_parser("compare", help="compare the operator outputs of two dumps", epilog=_EPILOG)
    c.add_argument("-m", "--my_dump_path", required=True, metavar="NPU.h5", help="dump of the NPU")
    c.add_argument("-g", "--golden_dump_path", required=True, metavar="GPU.h5", help="dump of the GPU or CPU")
    c.add_argument("-out", "--output", default=".", metavar="DIR", help="where result_*.csv and .html go (%(default)s)")
    c.add_argument(
        "-alg",
        "--algorithm",
        type=_algorithms,
        default="all",
        metavar="NAMES",
        help="measures, separated by commas: names, numbers from 0, or all (default)",
    )
    c.add_argument("--rtol", type=_limit, metavar="X", help="largest relative Euclidean distance (by dtype)")
    c.add_argument("--atol", type=_limit, metavar="X", help="largest absolute error that is always allowed (by dtype)")
    c.add_argument("--cosine", type=_cosine, metavar="X", help="least cosine similarity (not checked)")
    c.add_argument("--all", action="store_true", help="print every row, not only those out of tolerance")
    v = commands.add_parser("convert", help="turn ACL dump files into .npy files", epilog=_EPILOG)
    v.add_argument("-d", "--dump_path", required=True, metavar="DUMP", help="a dump file, or a folder of them")
    v.add_argument("-out", "--output", default=".", metavar="DIR", help="where the .npy files go (%(default)s)")
    v.add_argument(
        "-f",
        "--format",
        metavar="FORMAT",
        type=_format,
        help="layout of the tensors that have as many dims (ND, NCHW, NHWC, ...); default: the logical one",
    )
    v.add_argument(
        "-v", "--version", type=int, choices=(1, 2), default=2, help="version of the dump files (%(default)s)"
    )
    return p


def _format(text: str) -> str:
    import acl_dump

    wanted = text.upper()
    if not acl_dump.is_plain_format(wanted) and wanted not in acl_dump.PRIVATE:
        raise argparse.ArgumentTypeError(f"{text!r} is none of ND and the orders of NCHW and of NCDHW, such as NHWC")
    return wanted


def _limit(text: str) -> float:
    value = float(text)
    if not 0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text} is not a number from 0 on")
    return value


def _cosine(text: str) -> float:
    value = float(text)
    if not -1 <= value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is not a number from -1 to 1")
    return value


def _print_table(comparison, rows) -> None:
    import compare

    columns = ["Index", "NPUDump", "DataType", "TensorIndex", "Shape"]
    shown = [
        a for a in ("CosineSimilarity", "MaxAbsoluteError", "RelativeEuclideanDistance") if a in comparison.algorithms
    ]
    shown = shown or list(comparison.algorithms[:3])
    table = [
        [str(r.index), r.npu_dump if r.npu_dump != "NaN" else r.ground_truth, r.npu_dtype, r.tensor_index, r.shape]
        + [compare.number(r.result[a]) for a in shown]
        + [r.result.reason]
        for r in rows
    ]
    columns += [*shown, "CompareFailReason"]
    try:
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        print("note: rich is missing (pip install rich, part of torch[npu-tools]): plain table", file=sys.stderr)
        for line in [columns, *table]:
            print("\t".join(line))
        return
    grid = Table(*columns, expand=False)
    for row, line in zip(rows, table, strict=True):
        grid.add_row(*line, style=None if row.result.passed else "red")
    width = None if sys.stdout.isatty() else 200
    Console(width=width).print(grid)


def run_compare(options) -> int:
    """Compares two dumps, prints the table, writes the CSV file and the page."""
    import compare
    import html_report
    from h5_dump import DumpFile, DumpFileError
    from output import make_folder, whole_file

    try:
        with DumpFile(options.my_dump_path) as mine, DumpFile(options.golden_dump_path) as truth:
            comparison = compare.Comparison(
                mine, truth, options.algorithm, rtol=options.rtol, atol=options.atol, cosine=options.cosine
            )
    except DumpFileError as error:
        print(f"msaccucmp.py: {error}", file=sys.stderr)
        return REFUSED
    if not any(row.ground_truth != "NaN" and row.npu_dump != "NaN" for row in comparison.rows):
        print(
            f"msaccucmp.py: nothing to compare: {options.my_dump_path} and {options.golden_dump_path} have no operator "
            "with outputs in common",
            file=sys.stderr,
        )
        return REFUSED
    make_folder(options.output)
    stem = os.path.join(options.output, f"result_{time.strftime('%Y%m%d%H%M%S')}")
    number = 0
    while os.path.exists(f"{stem}{f'_{number}' if number else ''}.csv"):
        number += 1
    stem += f"_{number}" if number else ""
    page = html_report.page(comparison, options.my_dump_path, options.golden_dump_path)
    for path, text in ((f"{stem}.csv", comparison.csv()), (f"{stem}.html", page)):
        with whole_file(path) as file:
            file.write(text.encode("utf-8", "backslashreplace"))
    rows = comparison.rows if options.all else comparison.failed[:_MAX_ROWS]
    if not rows:
        rows = sorted(comparison.rows, key=_error, reverse=True)[:10]
        print("every operator is within tolerance; the largest differences:")
    _print_table(comparison, rows)
    if not options.all and len(comparison.failed) > _MAX_ROWS:
        print(f"and {len(comparison.failed) - _MAX_ROWS} more rows out of tolerance, see {stem}.csv")
    failed = comparison.failed_operators()
    print(f"{comparison.operators()} operators compared, {len(failed)} out of tolerance")
    if failed:
        print(f"first operator out of tolerance: {failed[0]}")
    print(f"{stem}.csv\n{stem}.html")
    return DIFFERS if failed else OK


def _error(row) -> float:
    value = row.result["RelativeEuclideanDistance"]
    return -1.0 if value != value else value


def main(arguments=None) -> int:
    """Runs the command; returns the exit status."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError):  # a stand-in of whoever calls us
            # names of files and operators may be in any script
            stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    options = parser().parse_args(arguments)
    try:
        if options.command == "compare":
            return run_compare(options)
        import convert

        return convert.run(options.dump_path, options.output, options.format)
    except ImportError as error:
        print(f"msaccucmp.py: {error}", file=sys.stderr)
        return MISSING
    except BrokenPipeError:
        # The reader of our output went away; give the interpreter a stream that it can still flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return DIFFERS
    except OSError as error:
        print(f"msaccucmp.py: {error.filename or '-out'}: {error.strerror or error}", file=sys.stderr)
        return REFUSED


if __name__ == "__main__":
    sys.exit(main())
