"""The calls between machines: JSON and safetensors over HTTP."""
