"""Rows and journal in PostgreSQL: for several machines, and databases that others look after."""
