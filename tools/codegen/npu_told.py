"""What Python is told of the operators that the table documents. Needs nothing but Python, since the build asks it."""

from __future__ import annotations


def documentation(entries: list[dict]) -> dict[str, dict]:
    """What Python is told of the entries with `doc`, by the operator's name: whether it is a method of tensors, and its
    documentation. The overloads of one name share one."""
    found: dict[str, dict] = {}
    for entry in entries:
        if "doc" not in entry:
            continue
        name, _, arguments = entry["func"].partition("(")
        method = arguments.split(",")[0].split(")")[0].strip() == "Tensor self"
        found.setdefault(name.strip().partition(".")[0], {"method": method, "args": {}, **entry["doc"]})
    return found
