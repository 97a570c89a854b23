"""The public test kit: what our own tests stand on, and what users' tests may stand on.

Each piece is a module of its own, imported by its own name, so that importing one brings in
nothing but what it needs: `from fairnotice.testing.manual_clock import ManualClock`.
"""
