"""Spark's settings on the command line, as spark-submit takes them."""

from queue_base.errors import Usage


def split_setting(setting: str) -> tuple[str, str]:
    """Return name and value of KEY=VALUE. Raises Usage."""
    name, equals, value = setting.partition("=")
    if not name or not equals:
        raise Usage(f"--conf {setting}: it must be KEY=VALUE")
    return name, value
