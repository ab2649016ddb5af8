r"""Facts about CANN's operator library."""


def version() -> None:
    r"""Return None: the library tells no version, and the plug-in returns None as well."""
    return
