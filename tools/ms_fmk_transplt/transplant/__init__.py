# The porting tool. Importing this package touches neither the device nor libcst: what needs them is imported when used.
"""Port CUDA training scripts to npu.

As a command: ``ms_fmk_transplt -i SRC -o OUT`` or, from a source tree,
``python3 tools/ms_fmk_transplt/ms_fmk_transplt.py``. As a library, ``torch.tools.ms_fmk_transplt.transplant``:
:func:`convert_text`.
"""


def convert_text(text: str, **options) -> str:
    """Convert the text of one Python module.

    Args:
        text: the source.
        **options: fields of :class:`.unit.Options`, such as ``version="1.5"``.

    Returns:
        The converted source; ``text`` itself where there is nothing to convert.

    Raises:
        ValueError: the text does not parse.
        ImportError: libcst is missing (``pip install torch[npu-tools]``).
    """
    from .convert import Converter
    from .unit import Options

    new, report = Converter(Options(**options)).convert(text.encode("utf-8"), "<text>")
    if report.status == "failed":
        raise ValueError(report.reason)
    return new.decode("utf-8")
