"""Rows and journal in one SQLite file: for one control plane on one machine."""
