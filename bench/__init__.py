"""The numbers of SPECIFICATION.md, measured: `make bench`, or `python -m bench --quick`."""
