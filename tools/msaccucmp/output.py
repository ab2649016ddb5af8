# What the commands write: files that are there whole or not at all, so that a full disk leaves no half result.
"""Output files and folders."""

import contextlib
import os


def make_folder(path: str) -> None:
    """Makes a folder if need be; OSError says what is in its place."""
    try:
        os.makedirs(path, exist_ok=True)
    except FileExistsError as error:
        raise NotADirectoryError(error.errno, "there is a file of this name, not a folder", path) from error


@contextlib.contextmanager
def whole_file(path: str):
    """A file to write bytes to, which gets its name when all is written."""
    beside = f"{path}.part"
    try:
        with open(beside, "wb") as file:
            yield file
        os.replace(beside, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror or str(error), path) from error
    finally:
        with contextlib.suppress(OSError):
            os.unlink(beside)
