"""Runs the operator's own command line for each impact."""
