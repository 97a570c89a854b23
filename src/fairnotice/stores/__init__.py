"""What is remembered: rows and journal, in memory, in SQLite or in PostgreSQL."""
