"""What the agent can do before and after an event: one kind of handler per file.

`registry.py` makes one by the name of its kind; `handler.py` says what each promises.
"""
