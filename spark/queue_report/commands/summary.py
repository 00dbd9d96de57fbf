"""What a build prints when it is done."""

from queue_base.errors import Temporary, complain
from queue_report.lake.build import Summary, describe_lines
from queue_report.schema.columns import UNREADABLE


def print_build(summary: Summary) -> None:
    """Print the warnings of a build on stderr, and what it did on stdout.

    Raises Temporary where the rules failed on a line: its queue was not read, and a later version may read it.
    """
    for warning in summary.warnings:
        complain("queue-report", f"warning: {warning}")
    print(describe_build(summary))
    if summary.unmatched:
        raise Temporary("unable to match every queue, see the warnings; the others are in the lake")


def describe_build(summary: Summary) -> str:
    """Return the lines for the screen."""
    lines = (
        [f"read {describe_lines(summary)} in {summary.seconds:.1f} s"] if summary.lines else ["nothing new in the logs"]
    )
    kinds = sorted((kind, number) for kind, number in summary.lines.items() if number and kind != UNREADABLE)
    if kinds:
        lines.append("lines: " + ", ".join(f"{kind} {number:,}" for kind, number in kinds))
    if summary.lines.get(UNREADABLE):
        bad = summary.lines[UNREADABLE]
        text = "1 line that" if bad == 1 else f"{bad:,} lines that"
        lines.append(f"quarantined: {text} cannot be read; the table quarantine has the reason")
    if summary.rows:
        lines.append("rows: " + ", ".join(f"{table} {number:,}" for table, number in summary.rows.items()))
    if summary.application:
        lines.append(f"Spark: application {summary.application}, 1 stage, {summary.tasks} tasks")
    if summary.expired:
        lines.append(f"expired: {summary.expired:,} files")
    if summary.compacted:
        lines.append(f"compacted: {summary.compacted:,} files")
    return "\n".join(lines)
