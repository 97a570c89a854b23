"""Use cases, without HTTP: what ties the conductor to those who are served and those who ask."""
