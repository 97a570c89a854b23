"""The metadata endpoint of one node, fed by control planes elsewhere. It has to stay small."""
