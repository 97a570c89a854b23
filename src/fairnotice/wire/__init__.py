"""Azure's JSON, byte for byte: what a VM sends and what it reads. Pure; knows no HTTP."""
