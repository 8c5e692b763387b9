# An image in which both commands of README run: `make quickstart` and `make test`.
#
#   docker build -t agentgym_flow . && docker run --rm agentgym_flow make quickstart
#
# PyTorch comes in its build for CPUs. With a GPU: --build-arg TORCH_PIP_ARGS=torch==2.13.0, and `docker run --gpus all`.
FROM python:3.11-slim

RUN apt-get update && apt-get install -y --no-install-recommends git make g++ chromium chromium-driver && rm -rf /var/lib/apt/lists/*

ARG TORCH_PIP_ARGS="torch==2.13.0 --index-url https://download.pytorch.org/whl/cpu"
WORKDIR /workspace
COPY . .
RUN make .venv/.dev TORCH_PIP_ARGS="$TORCH_PIP_ARGS" && git config --global --add safe.directory /workspace
ENV PATH="/workspace/.venv/bin:$PATH"
CMD ["make", "help"]
