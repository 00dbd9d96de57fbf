"""One self-contained HTML page of a lake's reports. Only collect.py knows Spark: it makes data.PageData, and from there
on all is plain Python, without a clock or a file: document.py is the page, mail.py and queue.py its sections.
"""
