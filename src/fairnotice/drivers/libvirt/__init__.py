"""Machines that libvirt runs. docs/guides/libvirt.md says how, docs/decisions/0018-libvirt.md why."""
