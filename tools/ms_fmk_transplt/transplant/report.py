# The files a conversion leaves beside its result: the log, one line per change, and the spreadsheet of what npu lacks.
"""Log, spreadsheet, JSON and summary of a conversion."""

from .records import FileReport

LOG_NAME = "msFmkTranspltlog.txt"
SHEET_NAME = "unsupported_op.xlsx"
COLUMNS = ("File", "Line", "API", "Support", "Hint")
STATUSES = ("converted", "unchanged", "ported", "copied", "skipped", "failed")


def shown(path: str) -> str:
    """A path as one line of valid text: control characters and undecodable bytes are escaped."""
    if path.isprintable():
        return path
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in path)


def log_text(title: str, reports: list[FileReport], notes: list[str]) -> str:
    """The log: ``file:line[-line]: [rule] before -> after  (why)``, hints, unsupported APIs and failures."""
    lines = [title, ""]
    for report in reports:
        path = shown(report.path)
        if report.reason:
            lines.append(f"{path}: [{report.status}] {report.reason}")
        for change in report.changes:
            place = f"{path}:{change.line}"
            if change.end_line != change.line:
                place += f"-{change.end_line}"
            before = change.before or "(nothing)"
            lines.append(
                f"{place}: [{change.rule}] {before} -> {change.after or '(nothing)'}  ({change.why.rstrip('.')})"
            )
        lines += [f"{path}:{hint.line}: [hint: {hint.rule}] {hint.text}" for hint in report.hints]
        lines += [
            f"{path}:{u.line}: [unsupported: {u.support}] {u.api}  ({u.hint.rstrip('.')})" for u in report.unsupported
        ]
    lines += [f"note: {shown(note)}" for note in notes]
    lines += ["", "Summary: " + ", ".join(f"{value} {name}" for name, value in totals(reports).items())]
    return "\n".join(lines) + "\n"


def totals(reports: list[FileReport]) -> dict[str, int]:
    """Numbers of files by status, and of changes, hints and unsupported uses."""
    result = {"files": len(reports)}
    result.update({status: sum(report.status == status for report in reports) for status in STATUSES})
    result["changes"] = sum(len(report.changes) for report in reports)
    result["hints"] = sum(len(report.hints) for report in reports)
    result["unsupported"] = sum(len(report.unsupported) for report in reports)
    return result


def write_sheet(path: str, reports: list[FileReport]) -> None:
    """Write the spreadsheet of unsupported APIs (header always, one row per use)."""
    from openpyxl import Workbook
    from openpyxl.cell.cell import ILLEGAL_CHARACTERS_RE
    from openpyxl.styles import Font

    book = Workbook()
    sheet = book.active
    sheet.title = "unsupported"
    sheet.append(COLUMNS)
    for cell in sheet[1]:
        cell.font = Font(bold=True)
    for column, width in zip("ABCDE", (48, 8, 44, 12, 70), strict=True):
        sheet.column_dimensions[column].width = width
    for report in reports:
        for use in report.unsupported:
            row = (shown(report.path), use.line, use.api, use.support, use.hint)
            sheet.append([ILLEGAL_CHARACTERS_RE.sub("", cell) if isinstance(cell, str) else cell for cell in row])
    sheet.freeze_panes = "A2"
    sheet.auto_filter.ref = sheet.dimensions
    book.save(path)
