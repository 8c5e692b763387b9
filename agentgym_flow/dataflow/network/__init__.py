"""Calls between machines: JSON and safetensors over HTTP."""
