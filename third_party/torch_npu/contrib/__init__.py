"""`torch_npu.contrib`: what scripts of the plug-in era import from here."""
