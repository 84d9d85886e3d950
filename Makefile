# The one door. Every recipe sets up what it needs; nothing but Python 3.11, git and make is needed first.
SHELL := /bin/bash
.DEFAULT_GOAL := help
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
UV := .tools/bin/uv
export UV_PYTHON_DOWNLOADS := never
# Modules are compiled once here, not at each start of each process: the libraries by uv, our own by COMPILE. Many images
# set PYTHONDONTWRITEBYTECODE; with it, pytest would compile all tests in each worker.
export UV_COMPILE_BYTECODE := 1
unexport PYTHONDONTWRITEBYTECODE
COMPILE = $(VENV)/bin/python -m compileall -qq -j 2
PYTEST := $(VENV)/bin/pytest
# EXIT=1: the demo ends by itself, with status 0 only if every invariant held. DEMO_FLAGS: more options of `koord demo`.
EXIT ?=
DEMO_FLAGS ?=

.PHONY: help install setup demo up down test tests test-all test-everything test-compose compose-demo compose-down test-kubernetes test-sig-scheduling test-oracle test-runtime test-cgroup2 test-cluster cluster cluster-down cluster-tools test-tools check compiled image chart bench audit docs lint format typecheck contracts schemas metrics clean

help: ## what each target does
	@if [ -t 1 ]; then bold='\033[1m' plain='\033[0m'; fi; grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | \
		awk -F':.*## ' -v bold="$$bold" -v plain="$$plain" '{printf "  %smake %-13s%s %s\n", bold, $$1, plain, $$2}'

$(UV): uv-requirements.txt
	@echo "==> installing uv into .tools"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Python 3.11 or newer is needed; set PYTHON=/path/to/python3.11"; exit 1; }
	@$(PYTHON) -m venv .tools && .tools/bin/pip install --quiet --disable-pip-version-check \
		--require-hashes --requirement uv-requirements.txt && touch $@

# Two steps: what `make up` needs, and what only developers need (two thirds of it all: pyright's nodejs, playwright, moto).
# --inexact: nothing is uninstalled, neither what the other step has installed nor a plugin of somebody.
PROJECTS := uv.lock pyproject.toml $(wildcard libs/*/pyproject.toml services/*/pyproject.toml)
SYNC = $(UV) sync --frozen --all-packages --inexact $(if $(wildcard $(VENV)/bin/python),,--python $(PYTHON))
$(VENV)/.installed: $(PROJECTS) | $(UV)
	@echo "==> installing the environment from uv.lock"
	@$(SYNC) --no-dev
	@touch $@

$(VENV)/.synced: $(PROJECTS) | $(UV)
	@echo "==> syncing the environment from uv.lock, with the tools of developers"
	@$(SYNC)
	@touch $(VENV)/.installed $@

install: $(VENV)/.installed ## make the environment (.venv) from uv.lock, without the tools of developers
	@$(COMPILE) libs/*/src services/*/src || true

setup: $(VENV)/.synced ## make the whole environment
	@$(COMPILE) libs/*/src services/*/src tests/support || true

demo: install ## place a real trace on a live cluster; dashboard until Ctrl-C (EXIT=1: end by itself)
	@$(VENV)/bin/koord demo $(if $(EXIT),--exit,) $(DEMO_FLAGS)

up: install ## start the embedded stack in the background
	@$(VENV)/bin/koord up

down: install ## stop it
	@$(VENV)/bin/koord down

lint: setup format-check typecheck contracts ## ruff, pyright strict, import contracts

format-check: setup ## ruff only: rules and format, nothing is changed
	@echo "==> ruff"; $(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check .

typecheck: setup ## pyright strict only
	@echo "==> pyright strict"; $(VENV)/bin/pyright --warnings

contracts: setup ## import contracts only
	@echo "==> import contracts"; $(VENV)/bin/lint-imports

format: setup ## format and fix what ruff can
	@$(VENV)/bin/ruff check --fix . && $(VENV)/bin/ruff format .

check: setup format-check contracts ## the fast part: lint, contracts, unit and conformance tests (90 seconds)
	@KOORD_FUZZ=quick $(PYTEST) -n 2 -q -m "not slow and not fuzz and not nats and not postgres and not browser and not root" libs services tests/conformance tests/architecture

test: setup format-check contracts ## lint, types, import contracts, and all tests but those of the other targets (8 minutes)
	@# pyright runs beside the tests.
	@$(MAKE) --no-print-directory --jobs 2 --keep-going typecheck tests

# A test that hangs takes its worker with it: a signal inside an event loop can lose a callback and hang for ever.
RUN_TESTS := $(PYTEST) -n 4 --dist loadgroup -o timeout_method=thread
tests: setup
	@$(RUN_TESTS)

test-all: setup ## what `make test` leaves out: deep property tests, browser pages, long churn, upgrades, the compiled scheduler
	@$(RUN_TESTS) --suite deep

test-everything: test test-all test-oracle test-compose test-runtime test-kubernetes test-sig-scheduling test-cluster ## every test; before a large change is called done

# containerd 2 with its shim, and crictl. Without Go they are not built, and their tests say so.
RUNTIME_TOOLS := $(CURDIR)/var/runtime-tools
RUNTIME_SOURCES := tests/runtime/tools
$(RUNTIME_TOOLS)/.built: $(wildcard $(RUNTIME_SOURCES)/go.*)
	@echo "==> building containerd 2 and crictl, some three minutes"
	@cd $(RUNTIME_SOURCES) && GOBIN=$(RUNTIME_TOOLS) CGO_ENABLED=0 GOFLAGS=-mod=readonly \
		go install -tags no_btrfs,no_devmapper,no_zfs tool
	@touch $@

RUNTIME_BUILT := $(if $(shell command -v go),$(RUNTIME_TOOLS)/.built)
test-runtime: setup $(RUNTIME_BUILT) ## containerd 1 and 2, NRI, crictl, dockerd (root, containerd, runc, docker.io, go)
	@$(PYTEST) -n 0 --suite runtime tests/runtime

# Debian's kernel in qemu, both from apt, unpacked below var/.
test-cgroup2: setup ## the agent on a real cgroup v2, in a virtual machine without acceleration (apt)
	@$(VENV)/bin/python tests/support/cgroup2_machine.py

# etcd, kube-apiserver and its companions, kubectl, and Helm. Without Go they are not built, and their tests say so.
KUBERNETES_VERSION := 1.35.4
KUBERNETES_TOOLS := $(CURDIR)/var/kubernetes-tools
KUBERNETES_SOURCES := tests/kubernetes/tools
GO_VERSION_OF := -X k8s.io/component-base/version
GO_VERSION := $(GO_VERSION_OF).gitMajor=1 $(GO_VERSION_OF).gitMinor=35 $(GO_VERSION_OF).gitVersion=v$(KUBERNETES_VERSION)
$(KUBERNETES_TOOLS)/.built: $(wildcard $(KUBERNETES_SOURCES)/go.*)
	@echo "==> building Kubernetes $(KUBERNETES_VERSION), some five minutes"
	@cd $(KUBERNETES_SOURCES) && export GOFLAGS=-mod=readonly && \
		go build -trimpath -ldflags='-s -w' -o $(KUBERNETES_TOOLS)/etcd go.etcd.io/etcd/server/v3 && \
		go build -trimpath -ldflags='-s -w $(GO_VERSION)' -o $(KUBERNETES_TOOLS)/ \
			k8s.io/kubernetes/cmd/kube-apiserver k8s.io/kubernetes/cmd/kube-controller-manager k8s.io/kubernetes/cmd/kubectl
	@touch $@

$(KUBERNETES_TOOLS)/kube-scheduler: $(KUBERNETES_TOOLS)/.built
	@cd $(KUBERNETES_SOURCES) && GOFLAGS=-mod=readonly \
		go build -trimpath -ldflags='-s -w $(GO_VERSION)' -o $@ k8s.io/kubernetes/cmd/kube-scheduler

# A module of its own: its dependencies would change those of the API server.
$(KUBERNETES_TOOLS)/helm: $(wildcard $(KUBERNETES_SOURCES)/helm/go.*)
	@echo "==> building Helm, a minute"
	@cd $(KUBERNETES_SOURCES)/helm && GOFLAGS=-mod=readonly go build -trimpath -ldflags='-s -w' -o $@ helm.sh/helm/v3/cmd/helm

# The definition of the operator's Cluster, for k8s/overlays/operator. go.sum pins its content.
$(KUBERNETES_TOOLS)/cloudnative-pg.yaml: $(wildcard $(KUBERNETES_SOURCES)/cloudnative-pg/go.*)
	@mkdir -p $(@D) && cd $(KUBERNETES_SOURCES)/cloudnative-pg && export GOFLAGS=-mod=readonly && \
		module=github.com/cloudnative-pg/cloudnative-pg && go mod download $$module && \
		install -m 644 "$$(go list -m -f '{{.Dir}}' $$module)/config/crd/bases/postgresql.cnpg.io_clusters.yaml" $@

KUBERNETES_BUILT := $(if $(shell command -v go),$(addprefix $(KUBERNETES_TOOLS)/,.built kube-scheduler helm cloudnative-pg.yaml))
test-kubernetes: setup $(KUBERNETES_BUILT) ## a real etcd, kube-apiserver and its companions, kubectl, Helm (root, go)
	@$(PYTEST) -n 0 --suite kubernetes tests/kubernetes

# The tests of SIG Scheduling in Kubernetes' e2e.test, without the tests of other groups.
SIG_SCHEDULING := $(KUBERNETES_TOOLS)/sig-scheduling
$(SIG_SCHEDULING): $(wildcard $(KUBERNETES_SOURCES)/go.* $(KUBERNETES_SOURCES)/sig-scheduling/*)
	@echo "==> building the tests of SIG Scheduling, some three minutes the first time"
	@cd $(KUBERNETES_SOURCES) && GOFLAGS=-mod=readonly go build -trimpath -ldflags='-s -w $(GO_VERSION)' -o $@ ./sig-scheduling

SIG_SCHEDULING_BUILT := $(if $(shell command -v go),$(KUBERNETES_TOOLS)/.built $(SIG_SCHEDULING))
test-sig-scheduling: setup $(SIG_SCHEDULING_BUILT) ## Kubernetes' own end-to-end tests of its scheduler, on ours (root, go)
	@$(PYTEST) -n 0 --suite sig_scheduling tests/sig_scheduling

# kube-scheduler's plugins and the API server's defaults and validation as one program, which answers lines of JSON.
ORACLE := $(CURDIR)/var/oracle/oracle
$(ORACLE): $(wildcard $(KUBERNETES_SOURCES)/go.* $(KUBERNETES_SOURCES)/oracle/*)
	@echo "==> building the oracle, some three minutes the first time"
	@cd $(KUBERNETES_SOURCES) && GOFLAGS=-mod=readonly go build -trimpath -ldflags='-s -w' -o $@ ./oracle

# The plugins of the Kubernetes descheduler in the same way. It needs other versions of Kubernetes' modules.
DESCHEDULER_ORACLE := $(dir $(ORACLE))descheduler
$(DESCHEDULER_ORACLE): $(wildcard $(KUBERNETES_SOURCES)/descheduler/*)
	@echo "==> building the oracle of the descheduler, some minutes the first time"
	@cd $(KUBERNETES_SOURCES)/descheduler && GOFLAGS=-mod=readonly go build -trimpath -ldflags='-s -w' -o $@ .

# The recommender of the Vertical Pod Autoscaler in the same way.
RECOMMENDER_ORACLE := $(dir $(ORACLE))recommender
$(RECOMMENDER_ORACLE): $(wildcard $(KUBERNETES_SOURCES)/recommender/*)
	@echo "==> building the oracle of the recommender, some minutes the first time"
	@cd $(KUBERNETES_SOURCES)/recommender && GOFLAGS=-mod=readonly go build -trimpath -ldflags='-s -w' -o $@ .

ORACLE_BUILT := $(if $(shell command -v go),$(ORACLE) $(DESCHEDULER_ORACLE) $(RECOMMENDER_ORACLE))
test-oracle: setup $(ORACLE_BUILT) ## random clusters, pods and histories beside the code of kube-scheduler, the descheduler and the autoscaler (go); KOORD_FUZZ=deep: ten times as many
	@$(PYTEST) -n 0 --suite oracle tests/oracle

# The rest of a node: kubelet and kube-proxy of the same Kubernetes, containerd 2 with ctr, CNI plugins, CoreDNS.
CLUSTER_TOOLS := $(CURDIR)/var/cluster-tools
CLUSTER_SOURCES := tests/cluster/tools/coredns
CNI := github.com/containernetworking/plugins/plugins
CONTAINERD := github.com/containerd/containerd/v2/cmd
$(CLUSTER_TOOLS)/.built: $(wildcard $(KUBERNETES_SOURCES)/go.* $(RUNTIME_SOURCES)/go.* $(CLUSTER_SOURCES)/*)
	@echo "==> building kubelet, kube-proxy, containerd 2, CNI plugins and CoreDNS, some seven minutes"
	@export GOFLAGS=-mod=readonly CGO_ENABLED=0 && \
		(cd $(KUBERNETES_SOURCES) && go build -trimpath -ldflags='-s -w $(GO_VERSION)' -o $(CLUSTER_TOOLS)/ \
			k8s.io/kubernetes/cmd/kubelet k8s.io/kubernetes/cmd/kube-proxy) && \
		(cd $(RUNTIME_SOURCES) && GOBIN=$(CLUSTER_TOOLS) go install -tags no_btrfs,no_devmapper,no_zfs \
			$(CONTAINERD)/containerd $(CONTAINERD)/containerd-shim-runc-v2 $(CONTAINERD)/ctr && \
			GOBIN=$(CLUSTER_TOOLS)/cni go install $(CNI)/main/bridge $(CNI)/main/loopback $(CNI)/ipam/host-local $(CNI)/meta/portmap) && \
		(cd $(CLUSTER_SOURCES) && go build -trimpath -ldflags='-s -w' -o $(CLUSTER_TOOLS)/coredns .)
	@touch $@

CLUSTER_BUILT := $(if $(shell command -v go),$(CLUSTER_TOOLS)/.built $(addprefix $(KUBERNETES_TOOLS)/,.built kube-scheduler))
cluster-tools: $(CLUSTER_BUILT) ## build the programs of `make cluster` (go)

CLUSTER := PYTHONPATH=tests $(VENV)/bin/python -m support.cluster
cluster: setup $(CLUSTER_BUILT) ## a real Kubernetes node on this machine, with Koordstream in pods (root, docker.io, debootstrap, runc, go)
	@$(CLUSTER) up

cluster-down: setup ## remove what `make cluster` started
	@$(CLUSTER) down

test-cluster: setup $(CLUSTER_BUILT) ## a day on such a cluster: install, colocate, restart what a node has, uninstall
	@$(PYTEST) -n 0 --suite cluster tests/cluster

test-tools: $(RUNTIME_BUILT) $(KUBERNETES_BUILT) $(SIG_SCHEDULING_BUILT) $(ORACLE_BUILT) $(CLUSTER_BUILT) ## build the programs of test-runtime, test-kubernetes, test-sig-scheduling, test-oracle and test-cluster (go)

# The collector and Jaeger, whose images cannot be pulled. Without Go they are not built, and their test says so.
COMPOSE_TOOLS := $(CURDIR)/var/compose-tools
COMPOSE_SOURCES := tests/compose/tools
$(COMPOSE_TOOLS)/.built: $(wildcard $(COMPOSE_SOURCES)/go.* $(COMPOSE_SOURCES)/collector/*)
	@echo "==> building the OpenTelemetry collector and Jaeger, some four minutes"
	@cd $(COMPOSE_SOURCES) && CGO_ENABLED=0 GOFLAGS=-mod=readonly \
		go build -trimpath -ldflags='-s -w' -o $(COMPOSE_TOOLS)/ ./collector tool
	@touch $@

COMPOSE_BUILT := $(if $(shell command -v go),$(COMPOSE_TOOLS)/.built)
test-compose: setup $(COMPOSE_BUILT) ## the image and docker-compose.yml on a real dockerd (root, docker.io, docker-compose, debootstrap, go)
	@$(PYTEST) -n 0 --suite compose tests/compose

chart: install ## the Helm chart in var/chart, made from k8s/
	@$(VENV)/bin/python k8s/chart/build.py var/chart

# The trace demo on docker compose, on volumes of its own. COMPOSE_DEMO_FLAGS: options of `koord demo`, such as --nodes 60.
COMPOSE := $(shell docker compose version >/dev/null 2>&1 && echo docker compose || echo docker-compose)
COMPOSE_DEMO_FLAGS ?=
COMPOSE_DEMO := KOORD_NODES=./var/compose-demo COMPOSE_PROJECT_NAME=koord-demo $(COMPOSE)
compose-demo: install ## the trace demo on docker compose, after `make image`; the dashboard stays, `make compose-down` removes it
	@mkdir -p var/compose-demo && $(VENV)/bin/koord demo $(COMPOSE_DEMO_FLAGS) --write-nodes var/compose-demo/nodes.json
	@$(COMPOSE_DEMO) up --detach --no-build $(COMPOSE_DEMO_SERVICES)
	@$(COMPOSE_DEMO) run --rm -T koord demo $(COMPOSE_DEMO_FLAGS) --running

compose-down: ## remove what `make compose-demo` started, with its data
	@$(COMPOSE_DEMO) down --volumes

# IMAGE: its name and tag. IMAGE_FLAGS: more flags of `docker build`.
IMAGE ?= koordstream:latest
IMAGE_FLAGS ?=
image: ## the one image of all services, and a copy of its bill of materials in var/image/sbom.cdx.json
	@echo "==> building $(IMAGE), some three minutes"
	@docker build --tag $(IMAGE) --build-arg REVISION=$$(git rev-parse --short HEAD 2>/dev/null || echo unknown) $(IMAGE_FLAGS) .
	@mkdir -p var/image && docker run --rm $(IMAGE) cat /opt/koord/sbom.cdx.json >var/image/sbom.cdx.json

# What is hot in a decision as machine code (docs/decisions/0013), where there are a C compiler and
# Python's header files: a folder for PYTHONPATH.
# Compiled from a source distribution, so that nothing compiled is left between the sources, where it would hide them.
COMPILED := var/compiled
HAS_CC := $(shell command -v cc >/dev/null && \
	$(PYTHON) -c 'import os, sysconfig; print("yes" if os.path.exists(sysconfig.get_path("include") + "/Python.h") else "")')
$(COMPILED)/.built: services/scheduler/pyproject.toml $(shell find services/scheduler/src -name '*.py') | $(VENV)/.synced
	@echo "==> compiling the scheduler, some two minutes"
	@rm -rf $(COMPILED) && HATCH_BUILD_HOOK_ENABLE_MYPYC=1 \
		$(UV) build --quiet --package koord-scheduler --python $(VENV)/bin/python --out-dir $(COMPILED)/dist
	@$(UV) pip install --quiet --no-deps --python $(VENV)/bin/python --target $(COMPILED)/site $(COMPILED)/dist/*.whl
	@touch $@

compiled: setup $(if $(HAS_CC),$(COMPILED)/.built) ## the scheduler as machine code in var/compiled/site, if there is a C compiler

bench: compiled ## measure against the targets; results in var/bench/results.json
	@$(if $(HAS_CC),PYTHONPATH=$(COMPILED)/site) $(VENV)/bin/python -m tests.bench

audit: $(UV) ## look up known vulnerabilities of all packages in uv.lock; needs the network
	@UV=$(UV) .ci/audit

schemas: install ## regenerate schemas/ from the event models and the CRDs, the names of Kubernetes' fields, and koord's help
	@$(VENV)/bin/python -m koordcore.events.export schemas
	@$(VENV)/bin/python -m koordcore.protocol.crd schemas/crds
	@$(VENV)/bin/python -m koord_manager.shell.export_fields \
		libs/koordcore/src/koordcore/protocol/kubernetes_fields.json
	@$(VENV)/bin/python -m koordctl.sketching libs/koordctl/src/koordctl/sketches.json

metrics: setup ## regenerate docs/metrics.md from what running services serve
	@KOORD_WRITE_METRICS=1 $(PYTEST) -n 0 -q --suite deep tests/e2e/test_metrics.py -k page

docs: setup ## the documentation site, with the reference from the docstrings, in var/docs-site
	@$(UV) sync --quiet --frozen --all-packages --inexact --group docs
	@echo "==> building var/docs-site"; NO_MKDOCS_2_WARNING=1 $(VENV)/bin/mkdocs build

clean: ## remove what the recipes made
	@rm -rf var .tools .venv .pytest_cache .ruff_cache .hypothesis
