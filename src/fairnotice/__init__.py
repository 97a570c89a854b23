"""fairnotice: Azure's Scheduled Events service as software you can run.

It tells every virtual machine what is about to happen to it, gives it the promised notice, waits
for its go-ahead, then does it. Which room holds what: docs/ARCHITECTURE.md.
"""

__version__ = "0.1.0"
