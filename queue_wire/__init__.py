"""The formats on disk and on pipes that two or more programs share, as pure functions.

Nothing here imports os, socket or time. A `pack_x` function returns bytes. An `unpack_x` function takes one whole
record and returns its value, or raises FormatError. A reader class takes bytes as they arrive and returns whole
records; what it buffers has a limit.
"""
