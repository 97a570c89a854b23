"""What a VM talks to: the hot path.

A poll goes from the socket to ready bytes and back, without a lock, a log line, an await or any
JSON: whatever can be rendered is rendered when it changes (board.py), and whatever can be decided
of a request is decided when its bytes are first seen (request.py).
"""
