"""Spark's settings on the command line, as spark-submit takes them; and what to say where a package is missing."""

from queue_base.errors import Permanent, Usage


def split_setting(setting: str) -> tuple[str, str]:
    """Return name and value of KEY=VALUE. Raises Usage."""
    name, equals, value = setting.partition("=")
    if not name or not equals:
        raise Usage(f"--conf {setting}: it must be KEY=VALUE")
    return name, value


def missing(error: ImportError) -> Permanent:
    """Return the failure for a package that an extra of ours would bring."""
    name = (error.name or str(error).rpartition("'")[0].rpartition("'")[2]).partition(".")[0]
    return Permanent(
        f"unable to load {name}: {error}; install it with bin/setup-suite DIRECTORY spark, then run this again"
    )
