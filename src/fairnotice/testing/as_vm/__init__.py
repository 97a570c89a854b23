"""A command that becomes a VM's, in a network of its own."""
