"""Batches and a model to a masked-token loss."""
