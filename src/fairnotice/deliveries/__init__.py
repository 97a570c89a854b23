"""Events told outside the VM: webhooks with the shape of Azure Event Grid."""
