"""What touches machines: each driver carries out impacts and says what became of them."""
