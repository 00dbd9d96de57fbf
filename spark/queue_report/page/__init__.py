"""One self-contained HTML page of a lake: what is wrong now, in words, and how the queues are and were.

gather.py asks an engine and makes data.PageData; from there on all is plain Python, without a clock or a file:
findings.py, the sections, and document.py, which is the page. docs/design/page.md tells more.
"""
