"""The agent: what runs in a VM, prepares it for an event and recovers it afterwards.

Of the standard library alone, as all that is installed in a VM.
"""
