"""The one graph IR: graphs, operations, tensors, how they are built, checked, imported and exported."""
