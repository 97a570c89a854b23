"""Azure Resource Manager's shapes: the unmodified `az` and Azure's SDKs work against them."""
