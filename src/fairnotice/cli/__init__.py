"""The command line: the composition root, one module per group of commands."""
