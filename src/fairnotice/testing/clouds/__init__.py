"""A whole service for one test, in its own process."""
