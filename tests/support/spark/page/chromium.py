"""Headless Chromium, which reads a file and says what it made of it. Each run has an empty profile of its own."""

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from support.tools import need

QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic",
    "--no-first-run", "--disable-background-networking", "--disable-component-update",
    "--disable-sync", "--disable-dev-shm-usage", "--hide-scrollbars",
)  # fmt: skip
DARK = "--blink-settings=preferredColorScheme=0"
LIGHT = "--blink-settings=preferredColorScheme=1"
# What an iframe may do in which no script runs.
NO_SCRIPTS = 'sandbox="allow-same-origin"'

# A page that holds another one in frames, and tells what is in each once it is loaded.
_OBSERVER = """<!DOCTYPE html><body>FRAMES
<script>
// The window is loaded once all frames are; a frame of a small page may be before this script runs.
window.onload = () => { for (const frame of document.querySelectorAll("iframe")) tell(frame); };
const tell = (frame) => {
  const inner = frame.contentDocument, root = inner.documentElement;
  const all = (what) => [...inner.querySelectorAll(what)];
  frame.nextElementSibling.textContent = JSON.stringify({
    title: inner.title, sections: all("section").map((one) => one.id),
    height: root.scrollHeight, width: root.scrollWidth, room: root.clientWidth,
    plots: all(".plot").map((one) => one.querySelectorAll("path, rect, line").length),
    cut: all("svg.field, svg.lane").filter((one) => one.getBoundingClientRect().right > root.clientWidth)
      .map((one) => one.getAttribute("aria-label")),
    wrapped: all("time, .whole").filter((one) => one.getClientRects().length > 1).map((one) => one.textContent),
    active: all("script, img, iframe, object, embed, link, form, [onerror], [onload]").length,
    loaded: frame.contentWindow.performance.getEntriesByType("resource").map((one) => one.name),
    ink: getComputedStyle(inner.body).color, paper: getComputedStyle(inner.body).backgroundColor,
    small: Math.min(...all("svg text").map((one) => one.getBoundingClientRect().height).filter((high) => high)),
  });
};
</script>"""
_FRAME = '<iframe {} width="{}" height="900" src="{}"></iframe><pre></pre>'


def run(*arguments: str) -> str:
    """Return what Chromium prints."""
    with tempfile.TemporaryDirectory() as profile:
        command = [need("chromium"), *QUIET, f"--user-data-dir={profile}", *arguments]
        done = subprocess.run(command, capture_output=True, timeout=240, check=True, cwd=profile)
    return done.stdout.decode()


def observe(page: Path, frames: Sequence[tuple[int, str]], *arguments: str) -> list[dict[str, Any]]:
    """Return what Chromium has of a page in frames, each of a width, with some attributes; see _OBSERVER."""
    return observe_pages([(page, width, attributes) for width, attributes in frames], *arguments)


def observe_pages(frames: Sequence[tuple[Path, int, str]], *arguments: str) -> list[dict[str, Any]]:
    """Return the same of frames that each have a page of their own; the first one's directory is written to."""
    outer = frames[0][0].with_name("observer.html")
    shown = "".join(_FRAME.format(attributes, width, page.as_uri()) for page, width, attributes in frames)
    outer.write_text(_OBSERVER.replace("FRAMES", shown))
    access = ("--allow-file-access-from-files", "--virtual-time-budget=20000")
    dumped = run(*access, *arguments, "--dump-dom", outer.as_uri())
    seen = [each.partition("</pre>")[0] for each in dumped.split("<pre>")[1:]]
    assert len(seen) == len(frames)
    return [json.loads(each) for each in seen]
