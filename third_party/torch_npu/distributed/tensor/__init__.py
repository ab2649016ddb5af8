"""torch.distributed.tensor by the plug-in's names."""
