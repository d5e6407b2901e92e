"""Binders connect speck to engines and brokers; each is an entry point."""
