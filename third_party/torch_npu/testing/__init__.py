"""`torch_npu.testing`: what test files of the plug-in era import: TestCase, inputs, decorators."""
