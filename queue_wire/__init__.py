"""Every format on disk or on a pipe, as pure functions: bytes in, values out.

Nothing here imports os, socket or time. A `pack_x` returns bytes; an `unpack_x` takes one whole
record and returns its value or raises FormatError; a reader class is fed bytes as they arrive and
hands over whole records, with a cap on what it buffers. docs/design/pipes.md describes each format.
"""
