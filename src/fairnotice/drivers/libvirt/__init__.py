"""Machines that libvirt runs: docs/guides/libvirt.md; why so: docs/decisions/0018-libvirt.md."""
